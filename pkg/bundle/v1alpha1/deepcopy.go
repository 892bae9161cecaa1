package v1alpha1

import (
	"maps"
	"slices"
)

// DeepCopy returns a copy that shares nothing with b, so that a provider can
// change it, such as the socket's path. A test fails if a new field is forgotten.
func (b *Bundle) DeepCopy() *Bundle {
	if b == nil {
		return nil
	}
	out := *b
	out.Scheduler = b.Scheduler.deepCopy()
	out.Konnectivity = b.Konnectivity.deepCopy()
	out.Aggregation.AllowedNames = slices.Clone(b.Aggregation.AllowedNames)
	out.Aggregation.EnableAggregatorRouting = clonePtr(b.Aggregation.EnableAggregatorRouting)
	out.PKI.Validity = clonePtr(b.PKI.Validity)
	out.PKI.CAValidity = clonePtr(b.PKI.CAValidity)
	return &out
}

func (s Scheduler) deepCopy() Scheduler {
	s.Enabled = clonePtr(s.Enabled)
	s.Replicas = clonePtr(s.Replicas)
	s.LeaderElection.LeaseDuration = clonePtr(s.LeaderElection.LeaseDuration)
	s.LeaderElection.RenewDeadline = clonePtr(s.LeaderElection.RenewDeadline)
	s.LeaderElection.RetryPeriod = clonePtr(s.LeaderElection.RetryPeriod)
	s.ClientConnection.QPS = clonePtr(s.ClientConnection.QPS)
	s.ClientConnection.Burst = clonePtr(s.ClientConnection.Burst)
	s.Parallelism = clonePtr(s.Parallelism)
	s.PercentageOfNodesToScore = clonePtr(s.PercentageOfNodesToScore)
	s.Profiles = slices.Clone(s.Profiles)
	for i := range s.Profiles {
		s.Profiles[i] = *s.Profiles[i].DeepCopy()
	}
	s.BuiltInProfiles = s.BuiltInProfiles.deepCopy()
	s.Plugins = s.Plugins.deepCopy()
	if s.Partition = clonePtr(s.Partition); s.Partition != nil {
		s.Partition.NodeLabels = maps.Clone(s.Partition.NodeLabels)
		s.Partition.Taint = s.Partition.Taint.DeepCopy()
	}
	s.Assignments = slices.Clone(s.Assignments)
	for i := range s.Assignments {
		a := &s.Assignments[i]
		a.NamespaceSelector, a.PodSelector = a.NamespaceSelector.DeepCopy(), a.PodSelector.DeepCopy()
	}
	s.DelayCacheUntilActive = clonePtr(s.DelayCacheUntilActive)
	s.FeatureGates = maps.Clone(s.FeatureGates)
	s.Resources = s.Resources.DeepCopy()
	s.NodeSelector = maps.Clone(s.NodeSelector)
	s.Tolerations = s.Tolerations.deepCopy()
	s.ExtraArgs = slices.Clone(s.ExtraArgs)
	return s
}

func (b BuiltInProfiles) deepCopy() BuiltInProfiles {
	if b.Binpack = clonePtr(b.Binpack); b.Binpack != nil {
		b.Binpack.PercentageOfNodesToScore = clonePtr(b.Binpack.PercentageOfNodesToScore)
		b.Binpack.Resources = slices.Clone(b.Binpack.Resources)
		b.Binpack.Weight = clonePtr(b.Binpack.Weight)
	}
	b.Standard = clonePtr(b.Standard)
	if b.Spread = clonePtr(b.Spread); b.Spread != nil {
		b.Spread.PercentageOfNodesToScore = clonePtr(b.Spread.PercentageOfNodesToScore)
		b.Spread.TopologyKeys = slices.Clone(b.Spread.TopologyKeys)
		b.Spread.MaxSkew = clonePtr(b.Spread.MaxSkew)
		b.Spread.Weight = clonePtr(b.Spread.Weight)
	}
	if b.Batch = clonePtr(b.Batch); b.Batch != nil {
		b.Batch.PercentageOfNodesToScore = clonePtr(b.Batch.PercentageOfNodesToScore)
	}
	return b
}

func (p SchedulerPlugins) deepCopy() SchedulerPlugins {
	p.TunnelReach.Enabled = clonePtr(p.TunnelReach.Enabled)
	p.TunnelReach.TunnelReachArgs = *p.TunnelReach.TunnelReachArgs.DeepCopy()
	p.PolitePreemption.Enabled = clonePtr(p.PolitePreemption.Enabled)
	p.PolitePreemption.PolitePreemptionArgs = *p.PolitePreemption.PolitePreemptionArgs.DeepCopy()
	p.ForeignNominations.Enabled = clonePtr(p.ForeignNominations.Enabled)
	p.ForeignNominations.ForeignNominationsArgs = *p.ForeignNominations.ForeignNominationsArgs.DeepCopy()
	p.FailoverBarrier.Enabled = clonePtr(p.FailoverBarrier.Enabled)
	p.FailoverBarrier.FailoverBarrierArgs = *p.FailoverBarrier.FailoverBarrierArgs.DeepCopy()
	return p
}

func (k Konnectivity) deepCopy() Konnectivity {
	k.Enabled = clonePtr(k.Enabled)
	k.Transport.UDS = clonePtr(k.Transport.UDS)
	k.Transport.TCP = clonePtr(k.Transport.TCP)
	k.LeaseCounting = clonePtr(k.LeaseCounting)
	k.Server.Count = clonePtr(k.Server.Count)
	k.Server.DrainTimeout = clonePtr(k.Server.DrainTimeout)
	k.Server.Resources = k.Server.Resources.DeepCopy()
	k.Server.ExtraArgs = slices.Clone(k.Server.ExtraArgs)
	k.Agent.Replicas = clonePtr(k.Agent.Replicas)
	k.Agent.HostNetwork = clonePtr(k.Agent.HostNetwork)
	k.Agent.NodeSelector = maps.Clone(k.Agent.NodeSelector)
	k.Agent.Tolerations = k.Agent.Tolerations.deepCopy()
	k.Agent.Resources = k.Agent.Resources.DeepCopy()
	k.Agent.ExtraArgs = slices.Clone(k.Agent.ExtraArgs)
	return k
}

func (t *Tolerations) deepCopy() *Tolerations {
	if t == nil {
		return nil
	}
	out := slices.Clone(*t)
	for i := range out {
		out[i] = *(*t)[i].DeepCopy()
	}
	return &out
}

// clonePtr copies what p points to, which must not hold references itself.
func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
