// TokenTable: the tokens that a coordinator takes now. Its driver fills it in; the threads that answer calls look
// tokens up.
//
// Thread-safe. Invariants: 1. A token is found only with its secret, until it expires, and while the coordinator leads.
// 2. An error does not tell a wrong secret from an unknown token. 3. Nothing here is logged.
#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/access.h"

namespace cairn {

struct TokenEntry {
  std::string secret_hash;  // TokenText::SecretHash
  Caller caller;            // with its token_id
  absl::Time expires;
};

class TokenTable {
 public:
  void Set(std::map<std::string, TokenEntry> tokens);  // by id
  // The coordinator does not lead. why: UNAVAILABLE, what callers get meanwhile.
  void Unset(const absl::Status& why);

  // authorization: of a call's metadata, "Bearer TOKEN". known_id: set to the token's id if there is such a token.
  // Errors: UNAUTHENTICATED says what to do; that of Unset.
  absl::StatusOr<Caller> Find(absl::string_view authorization, absl::Time now, std::string* known_id) const;
  // Whether the token that was found before still holds. Errors as Find.
  absl::Status Check(const std::string& id, absl::Time now) const;

 private:
  absl::StatusOr<const TokenEntry*> FindId(const std::string& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<std::string, TokenEntry> tokens_ ABSL_GUARDED_BY(mutex_);
  absl::Status unset_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("the coordinator is starting; try again");
};

}  // namespace cairn
