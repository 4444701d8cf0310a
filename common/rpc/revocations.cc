#include "common/rpc/revocations.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using Crl = std::unique_ptr<X509_CRL, Freer<X509_CRL_free>>;

std::string Der(const ASN1_INTEGER* serial) {
  return absl::StrCat(ASN1_STRING_type(serial), ":",
                      absl::string_view(reinterpret_cast<const char*>(ASN1_STRING_get0_data(serial)),
                                        static_cast<size_t>(ASN1_STRING_length(serial))));
}

bool IsSignedByOne(X509_CRL* crl, const std::vector<Certificate>& authorities) {
  return std::any_of(authorities.begin(), authorities.end(), [&](const Certificate& authority) {
    return X509_NAME_cmp(X509_get_subject_name(authority.get()), X509_CRL_get_issuer(crl)) == 0 &&
           X509_CRL_verify(crl, X509_get0_pubkey(authority.get())) == 1;
  });
}

// Those before the first one that is damaged, which is *damaged.
std::vector<Crl> ReadCrls(const std::string& pem, bool* damaged) {
  const std::unique_ptr<BIO, Freer<BIO_free>> memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<Crl> out;
  ERR_clear_error();
  while (X509_CRL* read = PEM_read_bio_X509_CRL(memory.get(), nullptr, nullptr, nullptr)) out.emplace_back(read);
  *damaged = ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE;  // which is the end of the text
  ERR_clear_error();
  return out;
}

}  // namespace

absl::StatusOr<Revocations> Revocations::Parse(const std::string& pem, const std::vector<Certificate>& authorities) {
  bool damaged = false;
  const std::vector<Crl> crls = ReadCrls(pem, &damaged);
  if (damaged) return absl::InvalidArgumentError(absl::StrCat("list ", crls.size() + 1, " is damaged"));
  if (crls.empty()) return absl::InvalidArgumentError("holds no list in PEM (-----BEGIN X509 CRL-----)");
  Revocations out;
  for (size_t i = 0; i < crls.size(); ++i) {
    X509_CRL* const crl = crls[i].get();
    if (!IsSignedByOne(crl, authorities))
      return absl::InvalidArgumentError(absl::StrCat("list ", i + 1, " is not signed by an authority of ca.crt"));
    List& list = out.lists_.emplace_back();
    list.issuer = std::shared_ptr<X509_NAME>(X509_NAME_dup(X509_CRL_get_issuer(crl)), X509_NAME_free);
    STACK_OF(X509_REVOKED)* const revoked = X509_CRL_get_REVOKED(crl);
    for (int j = 0; j < sk_X509_REVOKED_num(revoked); ++j) {
      list.serials.insert(Der(X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(revoked, j))));
    }
    std::tm date{};
    if (const ASN1_TIME* next = X509_CRL_get0_nextUpdate(crl); next != nullptr && ASN1_TIME_to_tm(next, &date) == 1)
      out.next_update_ = std::min(out.next_update_, absl::FromTM(date, absl::UTCTimeZone()));
  }
  return out;
}

bool Revocations::Has(X509* certificate) const {
  const std::string serial = Der(X509_get0_serialNumber(certificate));
  // X509_NAME_cmp: a name may be encoded in several ways.
  return std::any_of(lists_.begin(), lists_.end(), [&](const List& list) {
    return list.serials.contains(serial) && X509_NAME_cmp(list.issuer.get(), X509_get_issuer_name(certificate)) == 0;
  });
}

size_t Revocations::size() const {
  size_t size = 0;
  for (const List& list : lists_) size += list.serials.size();
  return size;
}

}  // namespace cairn
