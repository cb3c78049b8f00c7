"""The env layer: runtimes, wheels to pkg-builds, profiles, and the host env made from them."""
