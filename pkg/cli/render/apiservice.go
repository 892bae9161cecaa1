// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiservice"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// apiServiceOptions are the flags of "fairlead render apiservice".
type apiServiceOptions struct {
	request       apiservice.Request
	service       string
	caCert, caKey string
	streams       genericiooptions.IOStreams
	now           func() time.Time
}

const apiServiceLong = `Render the objects that register an extension API server with the aggregation layer:
a ServiceAccount, its rights, a Secret with a serving certificate, and the APIService.
Create the namespace, the Service and the Deployment of the server yourself, and
grant the ServiceAccount what the server needs beyond authentication.

The certificate is for SERVICE.NAMESPACE.svc. A new CA signs it, whose key is not
kept, unless you pass a CA with --ca-cert and --ca-key.

Start the server with the Secret before you create the APIService, and delete the
APIService first. While it is registered and not available, kube-apiserver deletes
no namespace. The APIService is the last object of the output.`

const apiServiceExamples = `  # Register API group example.com, which Service my-api in namespace apis serves
  fairlead render apiservice --group example.com --version v1 --service apis/my-api`

func newAPIServiceCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &apiServiceOptions{streams: streams, now: time.Now}
	cmd := &cobra.Command{
		Use: "apiservice", Short: "Render the objects that register an extension API server", Long: apiServiceLong, Example: apiServiceExamples, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	f := cmd.Flags()
	f.StringVar(&o.request.Group, "group", "", "API group, such as example.com")
	f.StringVar(&o.request.Version, "version", "v1", "version of the API")
	f.StringVar(&o.service, "service", "", "Service of the server, as NAMESPACE/NAME")
	f.Int32Var(&o.request.Port, "port", apiservice.DefaultPort, "port of the Service")
	f.StringVar(&o.request.ServiceAccount, "service-account", "", "ServiceAccount of the server's Pods (default: the name of the Service)")
	f.Int32Var(&o.request.GroupPriority, "group-priority-minimum", apiservice.DefaultGroupPriority, "priority of the group in discovery, 1 to 20000")
	f.Int32Var(&o.request.VersionPriority, "version-priority", apiservice.DefaultVersionPriority, "priority of the version in the group, 1 to 1000")
	f.StringVar(&o.caCert, "ca-cert", "", "file with the CA certificate that signs the serving certificate")
	f.StringVar(&o.caKey, "ca-key", "", "file with the CA's private key")
	return cmd
}

func (o *apiServiceOptions) run() error {
	namespace, name, ok := strings.Cut(o.service, "/")
	if !ok || o.request.Group == "" {
		return errors.New("--group and --service are required: for example --group example.com --service apis/my-api")
	}
	o.request.Namespace, o.request.Service = namespace, name
	for flag, n := range map[string]int32{"port": o.request.Port, "group-priority-minimum": o.request.GroupPriority, "version-priority": o.request.VersionPriority} {
		if n == 0 {
			return fmt.Errorf("--%s must not be 0", flag)
		}
	}
	r := o.request.Defaulted()
	if err := r.Validate(); err != nil {
		return err
	}
	cfg := pki.FromBundle(v1alpha1.New())
	ca, err := o.ca(cfg, r)
	if err != nil {
		return err
	}
	serving, err := r.Issue(cfg, ca, o.now())
	if err != nil {
		return fmt.Errorf("issue the serving certificate: %w", err)
	}
	objects, err := r.Objects(ca.CertPEM(), serving)
	if err != nil {
		return err
	}
	for i, object := range objects {
		data, err := bundle.EncodeYAML(object)
		if err != nil {
			return err
		}
		if i > 0 {
			data = append([]byte("---\n"), data...)
		}
		if _, err := o.streams.Out.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// ca reads the CA of the flags, or makes one.
func (o *apiServiceOptions) ca(cfg pki.Config, r apiservice.Request) (pki.KeyPair, error) {
	if (o.caCert == "") != (o.caKey == "") {
		return pki.KeyPair{}, errors.New("--ca-cert and --ca-key must be set together")
	}
	if o.caCert == "" {
		return pki.NewCA(cfg, r.Name()+"-ca", o.now())
	}
	cert, err := os.ReadFile(o.caCert)
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("--ca-cert: %w", err)
	}
	key, err := os.ReadFile(o.caKey)
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("--ca-key: %w", err)
	}
	pair, err := pki.ParseKeyPair(cert, key)
	if err != nil {
		return pair, fmt.Errorf("--ca-cert and --ca-key: %w", err)
	}
	return pair, nil
}
