#include "common/rpc/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace cairn {
namespace {

using Memory = std::unique_ptr<BIO, Freer<BIO_free>>;

Memory Open(const std::string& pem) { return Memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

int NoPassPhrase(char*, int, int, void*) { return -1; }

// type: GEN_URI or GEN_DNS.
std::vector<std::string> NamesOf(X509* certificate, int type) {
  const std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> found;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != type) continue;
    const ASN1_IA5STRING* const text = name->d.ia5;  // of both types
    found.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                       static_cast<size_t>(ASN1_STRING_length(text)));
  }
  return found;
}

}  // namespace

std::vector<Certificate> ReadCertificates(const std::string& pem) {
  const Memory memory = Open(pem);
  std::vector<Certificate> out;
  ERR_set_mark();
  while (X509* read = PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr)) out.emplace_back(read);
  ERR_pop_to_mark();  // OpenSSL reports the end of the text as an error
  return out;
}

std::vector<std::string> UrisOf(X509* certificate) { return NamesOf(certificate, GEN_URI); }

std::vector<std::string> DnsNamesOf(X509* certificate) { return NamesOf(certificate, GEN_DNS); }

absl::Time ExpiryOf(X509* certificate) {
  std::tm date{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &date) != 1) return absl::InfiniteFuture();
  return absl::FromTM(date, absl::UTCTimeZone());
}

PrivateKey ReadPrivateKey(const std::string& pem) {
  const Memory memory = Open(pem);
  return PrivateKey(PEM_read_bio_PrivateKey(memory.get(), nullptr, NoPassPhrase, nullptr));
}

}  // namespace cairn
