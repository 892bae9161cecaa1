// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// What can be wrong with a configuration file.
var (
	// ErrDecode is returned for data that is not a configuration, or has unknown
	// fields.
	ErrDecode = errors.New("cannot read the bundle configuration")
	// ErrInvalid is returned for a configuration that breaks a rule. The error says
	// which field, its value and what to do, for all broken rules.
	ErrInvalid = errors.New("invalid bundle configuration")
)

// Load reads an object of kind Bundle in YAML or JSON, fills in defaults and validates
// it. Unknown and duplicate fields are refused. Empty data is the default bundle. The
// object's status and what the API server adds to its metadata do not count.
func Load(data []byte) (*v1alpha1.Bundle, error) { return load(data, false) }

// LoadOpen is Load for a bundle to which others add profiles: see v1alpha1.Scheduler.Open.
func LoadOpen(data []byte) (*v1alpha1.Bundle, error) { return load(data, true) }

func load(data []byte, open bool) (*v1alpha1.Bundle, error) {
	b, err := decode(data)
	if err != nil {
		// Decoders return errors of several lines; join them to one.
		return nil, fmt.Errorf("%w: %s", ErrDecode, strings.Join(strings.Fields(err.Error()), " "))
	}
	b.Scheduler.Open = open
	v1alpha1.Default(b)
	if errs := inVersion(Validate(b), data); len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, errs.ToAggregate())
	}
	return b, nil
}

// Validate checks a defaulted bundle against its own rules, and if these hold,
// against those of the programs that it configures.
func Validate(b *v1alpha1.Bundle) field.ErrorList {
	if errs := v1alpha1.Validate(b); len(errs) > 0 {
		return errs
	}
	return slices.Concat(scheduler.Validate(b), konnectivity.Validate(b), gateway.Validate(b), tunnelapi.Validate(b))
}

func decode(data []byte) (*v1alpha1.Bundle, error) {
	document, err := onlyDocument(data)
	if err != nil || document == nil {
		return &v1alpha1.Bundle{}, err
	}
	// The first conversion rejects duplicate keys, the last one fields that do not
	// exist, wrongly capitalised ones included.
	raw, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	if err := checkShape(raw); err != nil {
		return nil, err
	}
	metadata, spec, err := decodeVersion(raw)
	if err != nil {
		return nil, err
	}
	return spec, checkMetadata(metadata)
}

// onlyDocument returns the one document of data that is not empty, nil if there
// is none.
func onlyDocument(data []byte) ([]byte, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var only []byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return only, nil
		}
		if err != nil {
			return nil, err
		}
		if isEmpty(document) {
			continue
		}
		if only != nil {
			return nil, errors.New("the file holds several documents: a bundle is one, " +
				"so that its parts cannot disagree; keep each bundle in a separate file")
		}
		only = document
	}
}

// isEmpty reports whether a document holds nothing but comments. One that cannot be
// parsed is not empty: decoding it gives the better error.
func isEmpty(document []byte) bool {
	var v any
	return yaml.Unmarshal(document, &v) == nil && v == nil
}
