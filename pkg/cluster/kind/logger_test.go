// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	kindcluster "sigs.k8s.io/kind/pkg/cluster"
)

// steps is a progress.Reporter that records the steps.
type steps struct{ lines []string }

func (s *steps) Begin(step string)       { s.lines = append(s.lines, "begin "+step) }
func (s *steps) Detail(string, ...any)   {}
func (s *steps) End(_ string, err error) { s.lines = append(s.lines, fmt.Sprintf("end %v", err)) }

// kind's own steps become ours: its library reports them through the logger.
// This docker has the image and fails at the network, in the middle of a step.
func TestKindsStepsAreShown(t *testing.T) {
	fakeRuntime(t, `case "$1 $2" in
"info "*) echo '{"CgroupVersion": "2", "MemoryLimit": true, "PidsLimit": true, "CPUShares": true}' ;;
"network ls") echo "an id" ;;
"network inspect") echo '[{"Id": "an id"}]' ;;
"ps "* | "inspect "*) ;;
*) echo "the disk is on fire" >&2; exit 1 ;;
esac
`)
	var seen steps
	log := newLogger(&seen)
	library := kindcluster.NewProvider(kindcluster.ProviderWithDocker(), kindcluster.ProviderWithLogger(log))
	data, err := newTestPlan(t, "").configYAML()
	if err != nil {
		t.Fatal(err)
	}
	err = library.Create("x", kindcluster.CreateWithRawConfig(data), kindcluster.CreateWithRetain(true))
	log.close(err)
	if err == nil {
		t.Fatal("a docker that cannot run anything made a cluster")
	}
	if want := []string{"begin Starting the node containers", "end failed"}; !slices.Equal(seen.lines, want) {
		t.Errorf("got %q, want %q (%v)", seen.lines, want, err)
	}
	if text := explain(err).Error(); !strings.Contains(text, "the disk is on fire") {
		t.Errorf("what the runtime said is lost: %s", text)
	}
	if !strings.Contains(log.text(), "Preparing nodes") {
		t.Errorf("kind's own words are not kept: %q", log.text())
	}
}

// A step that kind leaves open, as it does after some failures, is ended.
func TestOpenStepIsEnded(t *testing.T) {
	var seen steps
	log := newLogger(&seen)
	log.V(0).Infof(" • %s  ...\n", "Joining worker nodes 🚜")
	log.V(3).Info("kubeadm's words")
	log.V(4).Info("too much")
	log.close(errors.New("x"))
	log.close(nil)
	if want := []string{"begin Joining worker nodes", "end x"}; !slices.Equal(seen.lines, want) {
		t.Errorf("got %q, want %q", seen.lines, want)
	}
	if text := log.text(); !strings.Contains(text, "kubeadm's words") || strings.Contains(text, "too much") {
		t.Errorf("kept %q", text)
	}
}
