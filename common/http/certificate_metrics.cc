#include "common/http/certificate_metrics.h"

#include "common/rpc/credentials.h"

namespace cairn {

void AddCertificateMetrics(MetricFamilies& out) {
  const absl::Time expires = CertificateExpiry();
  if (expires == absl::InfiniteFuture()) return;
  out.Add("cairn_certificate_expiry_seconds",
          "When the certificate in use, or the authority that signed it, expires, Unix time", {},
          static_cast<double>(absl::ToUnixSeconds(expires)));
}

}  // namespace cairn
