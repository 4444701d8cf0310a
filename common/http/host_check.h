// HostCheck: by which names a server may be called, as a request's Host header has them. A page of somebody else's can
// make a browser call this server under that page's own name, whose address was changed meanwhile (DNS rebinding); the
// browser would then show the page what this server answers. Such a call has a name that is not this server's.
//
// Values and pure functions; any thread. Invariants: 1. An address is no name: who calls by one was not sent by a name
// (Kubernetes' probes, Prometheus' scrapes of pods). 2. Names have no case, and any port.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status.h"

namespace cairn {

class HostCheck {
 public:
  // names: this server's, beside localhost and what ends with .localhost. A name may begin with "*.": one label.
  explicit HostCheck(std::vector<std::string> names);

  // host: the header's value, "name", "name:port"; empty: the request has none. more: of the certificate.
  // Errors: NOT_FOUND says which flag adds the name.
  absl::Status Check(absl::string_view host, absl::Span<const std::string> more) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace cairn
