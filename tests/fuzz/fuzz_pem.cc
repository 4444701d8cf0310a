// Certificates and keys as a --tls-dir has them, and the bytes of a certificate as a peer sends it.
//
//   input := form:u8 (0 modulo 2: the text of PEM; else the bytes of a certificate) Rest(bytes)
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/pem.h"
#include "tests/fuzz/input.h"

namespace cairn {
namespace {

void Check(ByteSource in) {
  const bool text = in.Below(2) == 0;
  const std::string bytes(in.Rest());
  const std::string pem =
      text ? bytes
           : absl::StrCat("-----BEGIN CERTIFICATE-----\n", absl::Base64Escape(bytes), "\n-----END CERTIFICATE-----\n");
  for (const Certificate& certificate : ReadCertificates(pem)) {
    CAIRN_CHECK(certificate != nullptr, "no certificate");
    const std::vector<std::string> uris = UrisOf(certificate.get()), names = DnsNamesOf(certificate.get());
    size_t bytes_of_names = 0;
    for (const auto* list : {&uris, &names}) {
      for (const std::string& name : *list) bytes_of_names += name.size();
    }
    CAIRN_CHECK(bytes_of_names <= 2 * pem.size(), "names that are not in it");
    (void)ExpiryOf(certificate.get());
  }
  if (text) (void)ReadPrivateKey(pem);
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
