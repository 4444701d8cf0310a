// cairn replay: asks the coordinator for the job, and becomes cairn-replay (replay_main.cc), which computes.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/replay_flags.h"

namespace cairn {
namespace {

// Puts the job's status into standard input.
absl::Status GiveToNextProgram(const v1::JobStatus& job) {
  const int file = memfd_create("job", MFD_CLOEXEC);
  if (file >= 0 && job.SerializeToFileDescriptor(file) && lseek(file, 0, SEEK_SET) == 0 &&
      dup2(file, STDIN_FILENO) == STDIN_FILENO) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, "the job's status cannot be handed to cairn-replay");
}

// Returns only if the program cannot be started.
absl::Status BecomeProgram(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(pointers.front(), pointers.data());
  return absl::NotFoundError(absl::StrFormat("%s: %s; build or install it beside this program (Debian: cairn-daemons)",
                                             arguments.front(), std::strerror(errno)));
}

absl::Status Replay(const Globals& globals, const ReplayCommandOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const JobRef ref, JobRef::Parse(options.job));
  {
    JobClient client(globals.client);
    CAIRN_ASSIGN_OR_RETURN(const v1::JobStatus job, client.Get(ref));
    CAIRN_RETURN_IF_ERROR(GiveToNextProgram(job));
  }
  std::vector<std::string> arguments = ReplayArguments(options);
  arguments.insert(arguments.begin(), absl::StrCat(options.bin_dir, "/cairn-replay"));
  if (globals.json) arguments.push_back("--json");
  return BecomeProgram(std::move(arguments));
}

}  // namespace

int RunReplay(const Globals& globals, const ReplayCommandOptions& options) { return Fail(Replay(globals, options)); }

}  // namespace cairn
