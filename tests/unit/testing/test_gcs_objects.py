"""The objects of the server of Google Cloud Storage's XML API."""

from __future__ import annotations

import pytest

from lakevilla_testing.gcs.objects import Objects, Refusal


def test_a_write_is_stored_only_if_the_object_has_the_generation_that_it_names() -> None:
    objects = Objects()
    first = objects.write("b", "k", b"1", 0)
    for generation in (0, first.generation - 1):
        with pytest.raises(Refusal) as refused:
            objects.write("b", "k", b"2", generation)
        assert refused.value.status == 412
    second = objects.write("b", "k", b"1", first.generation)
    assert second.generation > first.generation
    assert objects.read("b", "k") == second


def test_the_limit_counts_for_each_object_and_before_any_condition() -> None:
    objects = Objects(seconds_between_writes=60.0)
    objects.write("b", "k", b"1")
    for request in (
        lambda: objects.write("b", "k", b"2", 0),
        lambda: objects.delete("b", "k"),
        lambda: objects.copy(("b", "k"), "b", "k"),
    ):
        with pytest.raises(Refusal) as refused:
            request()
        assert refused.value.status == 429
    objects.write("b", "other", b"1", 0)
    assert objects.turned_away == {"PUT": 2, "DELETE": 1}


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_pages_of_a_list_have_each_object_and_directory_once(most: int) -> None:
    objects = Objects()
    for key in ("a", "d/1", "d/2", "d/e/3", "d-x", "z/4"):
        objects.write("b", key, b"")
    objects.write("c", "a", b"")
    for delimiter, names in (
        ("", ["a", "d-x", "d/1", "d/2", "d/e/3", "z/4"]),
        ("/", ["a", "d-x", "d/", "z/"]),
    ):
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page = objects.page("b", "", delimiter, after, most)
            assert len(page.objects) + len(page.directories) <= most
            found += [*page.objects, *page.directories]
            after = page.next_token
        assert sorted(found) == names
    assert objects.page("b", "d/", "/", "", 100).directories == ["d/e/"]


def test_an_upload_in_parts_is_stored_when_it_is_complete() -> None:
    objects = Objects()
    upload = objects.begin_upload("b", "k")
    objects.add_part(upload, 2, b"56")
    objects.add_part(upload, 1, b"1234")
    with pytest.raises(Refusal, match="does not exist"):
        objects.read("b", "k")
    assert objects.complete_upload(upload).body == b"123456"
    with pytest.raises(Refusal, match="NoSuchUpload"):
        objects.complete_upload(upload)
