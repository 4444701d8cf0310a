// The text of a bearer token: "cairn-", its id (16 hexadecimal digits), "-", its secret (64 of them: 256 random bits).
// The id is no secret: lists and logs name tokens by it. Of the secret only a hash is kept; 256 bits cannot be guessed,
// so that a plain SHA-256 is enough.
//
// Values and pure functions, but for NewToken and ReadTokenFile; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

inline constexpr char kTokenMetadata[] = "authorization";
inline constexpr char kTokenScheme[] = "Bearer ";
inline constexpr size_t kSecretHashBytes = 32;

struct TokenText {
  std::string id;
  std::string secret;

  std::string Text() const;
  std::string SecretHash() const;  // SHA-256 of the secret's digits: kSecretHashBytes
};

// Of the system's random generator. Errors: INTERNAL: it does not work.
absl::StatusOr<TokenText> NewToken();
// nullopt: it is no token. Never say the text in an error: it may be a secret with a typing error.
std::optional<TokenText> ParseToken(absl::string_view text);

// Whether it may be the id of a token.
bool IsTokenId(absl::string_view id);

// Takes the same time wherever they differ.
bool SameHash(absl::string_view a, absl::string_view b);

// Of a file with a token and nothing else but blanks around it. `open`: set to a warning if other users can read it.
// Errors: INVALID_ARGUMENT names the file, and never its text.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path, std::string* open);
// `from`: "$CAIRN_TOKEN". Errors: INVALID_ARGUMENT names it.
absl::StatusOr<std::string> CheckToken(absl::string_view text, absl::string_view from);

// Whether a token may be sent to "host:port" without TLS: nobody is on the way.
bool IsLoopbackAddress(absl::string_view address);

}  // namespace cairn
