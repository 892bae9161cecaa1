// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Settings are the settings that only one provider has. A provider is registered with a
// function that returns its settings; see package providers.
type Settings interface {
	// ProviderName is the provider's name in --provider.
	ProviderName() string
	// AddFlags adds the flags that set them. No other provider may have a flag of the same
	// name. The help of each flag begins with the provider's name.
	AddFlags(f *pflag.FlagSet)
	// Validate checks the flags that the user has set.
	Validate(f *pflag.FlagSet) error
	// Provider returns the provider for the clusters below root.
	Provider(root string) Provider
}

// CheckPositive fails if the user has set one of these flags to less than 1.
func CheckPositive(f *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if n, err := f.GetInt(name); err == nil && f.Changed(name) && n < 1 {
			return fmt.Errorf("--%s %d: must be at least 1", name, n)
		}
	}
	return nil
}
