// Metrics of the certificate that this process uses.
//
// Any thread.
#pragma once

#include "common/report/metric_families.h"

namespace cairn {

// Nothing without TLS.
void AddCertificateMetrics(MetricFamilies& out);

}  // namespace cairn
