"""What several tests need: wheels made on the spot, an index that serves them, a way to run px."""
