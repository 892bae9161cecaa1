// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
)

// docs/proxy.md names every flag that kubectl proxy does not have, and no flag that the
// command lacks.
// It observes HTTP-07 of docs/requirements.md.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	flags, connection := NewCommand(genericiooptions.NewTestIOStreamsDiscard()).Flags(), pflag.NewFlagSet("", pflag.ContinueOnError)
	clusterflags.New().AddFlags(connection)
	kubectls := "port address unix-socket api-prefix www www-prefix accept-hosts accept-paths reject-paths reject-methods disable-filter keepalive append-server-path"
	for name := range strings.FieldsSeq(kubectls) {
		if flags.Lookup(name) == nil {
			t.Errorf("the flag --%s of kubectl proxy is missing", name)
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if connection.Lookup(f.Name) == nil && !strings.Contains(" "+kubectls+" ", " "+f.Name+" ") && !strings.Contains(string(text), "`--"+f.Name) {
			t.Errorf("docs/proxy.md does not have --%s", f.Name)
		}
	})
	for _, m := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(string(text), -1) {
		if flags.Lookup(m[1]) == nil && m[1] != "server" {
			t.Errorf("docs/proxy.md has --%s, which the command does not have", m[1])
		}
	}
}
