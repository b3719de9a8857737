"""TPC-DS: analytical queries through LakeVilla and through its peers (Figure 13)."""
