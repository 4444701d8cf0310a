// Tokens: bearer tokens of people, as stored: who made which, for whom, until when. Whether a call's token holds is
// decided outside (common/rpc/token_table.h), from all().
//
// Not thread-safe; one core owns it. Invariants:
//   1. A token that is told to its maker is stored. A token that is told to be revoked is not.
//   2. A request that comes again, with the id and the hash of its first time, makes no second token.
//   3. They are bounded (limits.h): those that expired kTokensKeptAfterExpiry ago go when another one is made.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cairn/v1/tokens.pb.h"
#include "coordinator/core/component.h"
#include "coordinator/core/events.h"

namespace cairn {

class Tokens : Component {
 public:
  Tokens(Ground& ground, const StoredState& stored);

  void OnCreate(const CreateToken& event);
  void OnRevoke(const RevokeToken& event);

  const std::map<std::string, v1::StoredToken>& all() const { return tokens_; }  // by id
  uint64_t changes() const { return changes_; }                                  // grows whenever all() has changed

 private:
  void ForgetExpired();
  absl::Status CheckRoom(const std::string& user) const;

  std::map<std::string, v1::StoredToken> tokens_;
  uint64_t changes_ = 0;
};

}  // namespace cairn
