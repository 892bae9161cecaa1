// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// maxResponse bounds what is read of a response.
const maxResponse = 64 << 20

// Endpoint is where the webhook is.
type Endpoint struct {
	// URL is for messages and requests.
	URL    string
	client *http.Client
}

// DialFunc opens a connection to the webhook.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// NewEndpoint makes an endpoint of a URL. The CA bundle, in PEM, replaces the CAs of this
// machine if it is not empty; dial may be nil.
func NewEndpoint(url string, ca []byte, dial DialFunc) (Endpoint, error) {
	if !strings.HasPrefix(url, "https://") {
		return Endpoint{}, fmt.Errorf("webhook %q: API servers call https URLs only", url)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(bytes.TrimSpace(ca)) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return Endpoint{}, errors.New("the CA bundle holds no certificate in PEM")
		}
	}
	return Endpoint{URL: url, client: &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, DialContext: dial, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Of returns the URL and the CA bundle of a definition's webhook. For a service, the host
// is the name that its certificate must have.
func Of(d *apiextensionsv1.CustomResourceDefinition) (url string, ca []byte, service *apiextensionsv1.ServiceReference, err error) {
	if d.Spec.Conversion == nil || d.Spec.Conversion.Webhook == nil || d.Spec.Conversion.Webhook.ClientConfig == nil {
		return "", nil, nil, fmt.Errorf("%s has no conversion webhook: set spec.conversion, or name the webhook with --url", d.Name)
	}
	c := d.Spec.Conversion.Webhook.ClientConfig
	if c.URL != nil {
		return *c.URL, c.CABundle, nil, nil
	}
	if c.Service == nil {
		return "", nil, nil, fmt.Errorf("%s: the webhook has neither url nor service: set one of them", d.Name)
	}
	path, port := "/", int32(443)
	if c.Service.Path != nil {
		path = "/" + strings.TrimPrefix(*c.Service.Path, "/")
	}
	if c.Service.Port != nil {
		port = *c.Service.Port
	}
	return fmt.Sprintf("https://%s.%s.svc:%d%s", c.Service.Name, c.Service.Namespace, port, path), c.CABundle, c.Service, nil
}

// post sends a body and returns the response and its content type.
func (e Endpoint) post(ctx context.Context, body []byte) ([]byte, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return nil, "", err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("the webhook answers %s: %s", resp.Status, strings.TrimSpace(string(answer[:min(len(answer), 200)])))
	}
	return answer, resp.Header.Get("Content-Type"), nil
}
