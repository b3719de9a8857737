"""Tables as clients without LakeVilla write and read them."""
