// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"testing"

	kinddefaults "sigs.k8s.io/kind/pkg/apis/config/defaults"

	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// What `make node-image` builds is found under the name that it has with each
// runtime: Podman puts localhost/ before the names in an archive of Docker's.
// It observes KON-86 of docs/requirements.md.
func TestChooseImage(t *testing.T) {
	own := nodeimage.Name()
	for _, tc := range []struct{ command, has, asked, want string }{
		{"docker", own, "", own},
		{"nerdctl", own, "", own},
		{"podman", "docker.io/" + own, "", own},
		{"podman", "localhost/" + own, "", "localhost/" + own},
		{"podman", "localhost/" + own, own, "localhost/" + own},
		{"podman", "localhost/" + own, "localhost/" + own, "localhost/" + own},
		{"docker", kinddefaults.Image, "", kinddefaults.Image},
		{"docker", "node:v1", "node:v1", "node:v1"},
	} {
		fakeCommand(t, tc.command, `case "$1 $2" in
"image inspect") [ "$4" = "$HAS" ] ;;
"run "*) echo "version v1.36.3" ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
`)
		t.Setenv("HAS", tc.has)
		image, _, err := (&runtime{command: tc.command}).chooseImage(t.Context(), tc.asked, progress.Silent)
		if err != nil || image != tc.want {
			t.Errorf("%s that has %s, asked for %q: %s, %v, want %s", tc.command, tc.has, tc.asked, image, err, tc.want)
		}
		if built(image) != (tc.has != kinddefaults.Image && tc.has != "node:v1") {
			t.Errorf("%s: built here: %v", image, built(image))
		}
	}
}
