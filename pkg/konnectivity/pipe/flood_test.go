package pipe_test

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/pipe"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// A destination that does not take what came before the dialler's reset, and sends without
// end, is not read at full speed for nobody.
func TestResetBehindStuckQueue(t *testing.T) {
	r := newRig(t, pipe.Config{}, 1<<30)
	r.data(make([]byte, 32<<20)) // more than the kernel takes
	go func() {
		for p := make([]byte, 256<<10); ; {
			if _, err := r.far.Write(p); err != nil {
				return
			}
		}
	}()
	r.Aborted(&tunnel.ResetError{Reason: "gone"})
	time.Sleep(100 * time.Millisecond)
	_, before := r.Moved()
	const d = time.Second
	time.Sleep(d)
	_, after := r.Moved()
	if rate := float64(after-before) / d.Seconds() / 1e6; rate > 60 {
		t.Errorf("reads %.0f MB/s for nobody", rate)
	}
}
