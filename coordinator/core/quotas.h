// Quotas: how much of the cluster a user, or a group, may have at a time. Read from a file of lines (docs/security.md):
//
//   default jobs=20 parameters=4000000000     # of each user who has no line of their own
//   user alice jobs=100 replicas=64           # takes the place of the default's line as a whole
//   group vision parameters=20000000000       # of all jobs of the group's members together
//
//   jobs         that have not ended
//   parameters   of the models of these
//   replicas     of these; a job that asks for all slots counts with what it got, and as one until then
//
// Where no line says how many jobs a user may have, also without a file, it is kJobsOfUserDefault (limits.h).
//
// Values and pure functions; any thread. Admins, and callers without a name, have no quotas.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

struct Quota {
  std::optional<int64_t> jobs, parameters, replicas;
};

// What somebody has, or asks for.
struct Holding {
  int64_t jobs = 0, parameters = 0, replicas = 0;

  void Add(int64_t job_parameters, int32_t job_replicas);
};

struct Quotas {
  std::string file;  // for messages
  std::optional<Quota> each_user;
  std::map<std::string, Quota> users, groups;

  // Errors: INVALID_ARGUMENT names the file, the line and what is wrong.
  static absl::StatusOr<Quotas> Parse(absl::string_view text, const std::string& file);

  const Quota* OfUser(const std::string& user) const;    // null: none
  const Quota* OfGroup(const std::string& group) const;  // null: none
  // whose: "user alice". Errors: RESOURCE_EXHAUSTED names the quota and the file.
  absl::Status Check(const Quota& quota, const std::string& whose, const Holding& has, const Holding& more) const;
};

// What holds of a user of whose jobs no line says a number. has: without the one that is asked for. Errors:
// RESOURCE_EXHAUSTED says where to write another number.
absl::Status CheckDefaultJobs(const std::string& user, const Holding& has);

}  // namespace cairn
