#include "common/rpc/token.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/rpc/address.h"
#include "common/rpc/limits.h"

namespace cairn {
namespace {

constexpr char kPrefix[] = "cairn-";
constexpr size_t kIdDigits = 16, kSecretDigits = 64;
static_assert(kSecretHashBytes == SHA256_DIGEST_LENGTH);

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::string TokenText::Text() const { return absl::StrCat(kPrefix, id, "-", secret); }

std::string TokenText::SecretHash() const {
  std::string hash(kSecretHashBytes, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

absl::StatusOr<TokenText> NewToken() {
  std::array<unsigned char, (kIdDigits + kSecretDigits) / 2> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    return absl::InternalError("the system gives no random numbers, so that no token can be made");
  }
  const std::string hex =
      absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return TokenText{hex.substr(0, kIdDigits), hex.substr(kIdDigits)};
}

std::optional<TokenText> ParseToken(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, kPrefix) || text.size() != kIdDigits + 1 + kSecretDigits || text[kIdDigits] != '-')
    return std::nullopt;
  const absl::string_view id = text.substr(0, kIdDigits), secret = text.substr(kIdDigits + 1);
  if (!IsTokenId(id) || !IsHex(secret)) return std::nullopt;
  return TokenText{std::string(id), std::string(secret)};
}

bool IsTokenId(absl::string_view id) { return id.size() == kIdDigits && IsHex(id); }

bool SameHash(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::StatusOr<std::string> CheckToken(absl::string_view text, absl::string_view from) {
  text = absl::StripAsciiWhitespace(text);
  if (ParseToken(text)) return std::string(text);
  return absl::InvalidArgumentError(absl::StrCat(
      from, ": holds no token: cairn-, 16 hexadecimal digits, -, and 64 more, as `cairn token create` prints it"));
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path, std::string* open) {
  const std::string name = absl::StrCat("--token-file: ", path);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(kTokenTextBytesMax + 1, '\0');
  const ssize_t bytes = file.get() < 0 ? -1 : read(file.get(), text.data(), text.size());
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", absl::ErrnoToStatus(errno, "cannot be read").message()));
  }
  text.resize(static_cast<size_t>(bytes));
  struct stat found {};
  if (fstat(file.get(), &found) == 0 && S_ISREG(found.st_mode) && (found.st_mode & S_IROTH) != 0) {
    *open = absl::StrFormat("%s: mode %03o: any user of this machine can read the token; chmod o-r it", name,
                            found.st_mode & 0777);
  }
  return CheckToken(text, name);
}

bool IsLoopbackAddress(absl::string_view address) {
  const std::string host = HostOf(std::string(address));
  in_addr ip{};
  return host == "localhost" || host == "[::1]" || host == "::1" ||
         (inet_pton(AF_INET, host.c_str(), &ip) == 1 && (ntohl(ip.s_addr) >> 24) == 127);
}

}  // namespace cairn
