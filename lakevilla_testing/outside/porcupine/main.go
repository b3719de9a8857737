// Program porcupine-lists checks histories of LakeVilla with Porcupine.
//
// A file has a transaction a line, as lakevilla_testing/outside/porcupine.py writes it. Each file is
// checked twice: each key by itself, as a linearizable list; and all keys together, where a
// transaction takes effect at one time between its call and its return (strict serializability).
//
// It prints a line of JSON a file, and ends with 1 if one of them is illegal.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is an append of a value to a key's list, or a read of that list.
type operation struct {
	Append string `json:"append,omitempty"`
	Value  int    `json:"value,omitempty"`
	Read   string `json:"read,omitempty"`
	Values []int  `json:"values"`
}

func (o operation) key() string {
	if o.Read != "" {
		return o.Read
	}
	return o.Append
}

type transaction struct {
	Name       string      `json:"name"`
	Client     int         `json:"client"`
	Call       int64       `json:"call"`
	Return     int64       `json:"return"`
	Operations []operation `json:"operations"`
}

// lists is the state of the model: each key's list, as text. It is never changed, but copied.
type lists map[string]string

func equal(a, b interface{}) bool {
	one, other := a.(lists), b.(lists)
	if len(one) != len(other) {
		return false
	}
	for key, list := range one {
		if other[key] != list {
			return false
		}
	}
	return true
}

func text(values []int) string {
	var out strings.Builder
	for _, value := range values {
		fmt.Fprintf(&out, "%d,", value)
	}
	return out.String()
}

// step performs a transaction on a state; false if it can't have read there what it has read.
func step(state, input, output interface{}) (bool, interface{}) {
	after := make(lists, len(state.(lists))+1)
	for key, list := range state.(lists) {
		after[key] = list
	}
	for _, o := range input.([]operation) {
		if o.Read == "" {
			after[o.Append] += fmt.Sprintf("%d,", o.Value)
		} else if after[o.Read] != text(o.Values) {
			return false, state
		}
	}
	return true, after
}

func describe(input, output interface{}) string {
	var out []string
	for _, o := range input.([]operation) {
		if o.Read == "" {
			out = append(out, fmt.Sprintf("append %s %d", o.Append, o.Value))
		} else {
			out = append(out, fmt.Sprintf("read %s [%s]", o.Read, text(o.Values)))
		}
	}
	return strings.Join(out, "; ")
}

// byKey cuts transactions into their operations on each key.
func byKey(history []porcupine.Operation) [][]porcupine.Operation {
	var order []string
	parts := map[string][]porcupine.Operation{}
	for _, whole := range history {
		own := map[string][]operation{}
		for _, o := range whole.Input.([]operation) {
			key := o.key()
			if _, known := parts[key]; !known && own[key] == nil {
				order = append(order, key)
				parts[key] = nil
			}
			own[key] = append(own[key], o)
		}
		for key, operations := range own {
			part := whole
			part.Input = operations
			parts[key] = append(parts[key], part)
		}
	}
	var found [][]porcupine.Operation
	for _, key := range order {
		found = append(found, parts[key])
	}
	return found
}

func model(partition func([]porcupine.Operation) [][]porcupine.Operation) porcupine.Model {
	return porcupine.Model{
		Partition:         partition,
		Init:              func() interface{} { return lists{} },
		Step:              step,
		Equal:             equal,
		DescribeOperation: describe,
	}
}

// read returns a file's transactions. One without an answer has no end; if nobody has read a value of
// it, the reads at the end included, it had no effect, and is left out. Of the others without an
// answer only the appends are kept.
func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []transaction
	seen := map[string]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var one transaction
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, one)
		for _, o := range one.Operations {
			for _, value := range o.Values {
				if one.Return >= 0 {
					seen[fmt.Sprint(o.Read, " ", value)] = true
				}
			}
		}
	}
	var history []porcupine.Operation
	for _, one := range all {
		end := one.Return
		if end < 0 {
			end = math.MaxInt64
			var appends []operation
			took := false
			for _, o := range one.Operations {
				if o.Read == "" {
					appends = append(appends, o)
					took = took || seen[fmt.Sprint(o.Append, " ", o.Value)]
				}
			}
			if !took {
				continue
			}
			one.Operations = appends
		}
		history = append(history, porcupine.Operation{
			ClientId: one.Client, Input: one.Operations, Call: one.Call, Return: end, Metadata: one.Name,
		})
	}
	return history, lines.Err()
}

func main() {
	seconds := flag.Float64("seconds", 10, "the time for each check")
	pages := flag.String("pages", "", "a directory for a page of HTML about each illegal history")
	flag.Parse()
	limit := time.Duration(*seconds * float64(time.Second))
	illegal := false
	for _, path := range flag.Args() {
		history, err := read(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		keys := porcupine.CheckOperationsTimeout(model(byKey), history, limit)
		whole, info := porcupine.CheckOperationsVerbose(model(nil), history, limit)
		answer, _ := json.Marshal(map[string]interface{}{
			"file": path, "transactions": len(history), "keys": keys, "whole": whole,
		})
		fmt.Println(string(answer))
		if keys == porcupine.Illegal || whole == porcupine.Illegal {
			illegal = true
			if *pages != "" {
				page := filepath.Join(*pages, filepath.Base(path)+".html")
				if err := porcupine.VisualizePath(model(nil), info, page); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		}
	}
	if illegal {
		os.Exit(1)
	}
}
