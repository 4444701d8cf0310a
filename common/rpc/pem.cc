#include "common/rpc/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>

namespace cairn {
namespace {

using Memory = std::unique_ptr<BIO, Freer<BIO_free>>;

Memory Open(const std::string& pem) { return Memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

int NoPassPhrase(char*, int, int, void*) { return -1; }

}  // namespace

std::vector<Certificate> ReadCertificates(const std::string& pem) {
  const Memory memory = Open(pem);
  std::vector<Certificate> out;
  ERR_set_mark();
  while (X509* read = PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr)) out.emplace_back(read);
  ERR_pop_to_mark();  // OpenSSL reports the end of the text as an error
  return out;
}

PrivateKey ReadPrivateKey(const std::string& pem) {
  const Memory memory = Open(pem);
  return PrivateKey(PEM_read_bio_PrivateKey(memory.get(), nullptr, NoPassPhrase, nullptr));
}

}  // namespace cairn
