prepare() { :; }
cleanup() { :; }
