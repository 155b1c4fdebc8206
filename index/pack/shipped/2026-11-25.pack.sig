{
 "pack": "2026-11-25.pack",
 "sha256": "d26bb3a2a808136c7ebc1b405b80d4faed62a0ff3a3f896155771ac25c97780b",
 "key": "56df4795fbb1c9e43a3035ce6a55b5e8b6e48130e32de1282a395dbb51fb8032",
 "signature": "xyHelegNdQnn7sAOucr2kdWRoWAF3ixC/xnxP5V9KDfqakABnPrKhZ/eW8pMpL8M8g1HDNO7WgJEHjPtUqAUBQ=="
}
