// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"

	"github.com/fairlead-dev/fairlead/pkg/monitoring"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The grid of Grafana has 24 columns.
const panelsPerRow, panelWidth, panelHeight = 3, 8, 8

// source is the data source that the reader of a dashboard chooses.
var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

// grafana renders a dashboard as JSON for import or provisioning.
func grafana(d monitoring.Dashboard) ([]byte, error) {
	b := dashboard.NewDashboardBuilder(d.Title).Uid(d.UID).Tags([]string{"fairlead", "konnectivity"}). //nolint:staticcheck // the successor needs Grafana 12
														Readonly().Refresh("30s").Time("now-1h", "now").Timezone("browser").
														WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"))
	y := uint32(0)
	for _, r := range d.Rows {
		b.WithRow(dashboard.NewRowBuilder(r.Title).GridPos(dashboard.GridPos{X: 0, Y: y, W: 24, H: 1}))
		y++
		for i, p := range r.Panels {
			at := dashboard.GridPos{X: uint32(i % panelsPerRow * panelWidth), Y: y + uint32(i/panelsPerRow*panelHeight), W: panelWidth, H: panelHeight}
			b.WithPanel(graph(p).GridPos(at))
		}
		y += uint32((len(r.Panels) + panelsPerRow - 1) / panelsPerRow * panelHeight)
	}
	built, err := b.Build()
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(built, "", "  ")
	return append(data, '\n'), err
}

func graph(p monitoring.Panel) *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().Title(p.Title).Unit(p.Unit).Min(0).Datasource(source).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		FillOpacity(10).LineWidth(1)
	if p.Description != "" {
		b.Description(p.Description)
	}
	for i, q := range p.Queries {
		b.WithTarget(prometheus.NewDataqueryBuilder().Expr(q.Expr).LegendFormat(q.Legend).RefId(string(rune('A' + i))).Range())
	}
	return b
}
