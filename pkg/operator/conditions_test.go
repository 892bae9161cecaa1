// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
)

// TestMessagesStay: a message comes back from JSON as it was set, and fits, however long it is and
// whatever bytes it has. Otherwise the operator would write the status at each look.
func TestMessagesStay(t *testing.T) {
	long := strings.Repeat("ü€🙂", 10_000)
	messages := []string{"short", "no text: \xff\xfe\xff", "a part of a character: \xe2\x82", long}
	for i := range 12 {
		messages = append(messages, strings.Repeat("x", i)+long, strings.Repeat("x", i)+strings.Repeat("a\xff", 20_000))
	}
	for _, message := range messages {
		b := &v1beta1.Bundle{}
		conditions(b)(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, message)
		set := b.Status.Conditions[0].Message
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var stored v1beta1.Bundle
		if err := json.Unmarshal(data, &stored); err != nil {
			t.Fatal(err)
		}
		if got := stored.Status.Conditions[0].Message; got != set {
			t.Errorf("%.20q…: stored as …%q, set as …%q", message, got[max(0, len(got)-9):], set[max(0, len(set)-9):])
		}
		if len(set) > 32768 || len(message) > 32768 && (len(set) < 32760 || !strings.HasSuffix(set, "...")) {
			t.Errorf("%.20q…: %d bytes of %d, ending in %q", message, len(set), len(message), set[max(0, len(set)-9):])
		}
	}
}

// TestMessageOfConnection: an error of a connection is the same message at each try, from whichever port. Each change would be
// a write and an event.
func TestMessageOfConnection(t *testing.T) {
	var all []metav1.Condition
	set := setter(&all, 1)
	for port := range 3 {
		set(v1beta1.BundleReconciled, false, v1beta1.ReasonFailed, fmt.Sprintf("apply: read tcp 10.0.0.1:%d->10.0.0.2:443: connection reset by peer", 40000+port))
		if want := "apply: read tcp 10.0.0.2:443: connection reset by peer"; all[0].Message != want {
			t.Errorf("got %q, want %q", all[0].Message, want)
		}
	}
}
