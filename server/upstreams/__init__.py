"""What Toolscout calls: each upstream's life, its connection, its listing."""
