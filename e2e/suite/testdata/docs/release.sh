. "$REPOSITORY/e2e/suite/testdata/docs/functions.sh"
prepare() { release; }
cleanup() { :; }
