// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// Write prints v in the format of --output: "json", "yaml", or "" for people,
// which is what human writes.
func Write(out io.Writer, format string, v any, human func(io.Writer) error) error {
	var text []byte
	var err error
	switch format {
	case "":
		return human(out)
	case "json":
		text, err = json.MarshalIndent(v, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(v)
	default:
		return fmt.Errorf("--output %q: choose json or yaml", format)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
