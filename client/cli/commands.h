// The commands of `cairn`, one file each (cmd_*.cc); main.cc turns flags into their options.
//
// Each returns the program's exit code. Output goes to stdout, errors and notes to stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/evaluation_flags.h"
#include "client/cli/local_cluster.h"
#include "client/cli/sweep/definition.h"
#include "client/cli/tf_config.h"
#include "client/job_client.h"

namespace cairn {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;   // the job failed or was cancelled, or no cluster answers
inline constexpr int kExitUsage = 2;    // wrong usage, or a job or file was refused
inline constexpr int kExitErrors = 3;   // the job did all its steps and ended with errors
inline constexpr int kExitDiffers = 4;  // a replayed step has other bits than the job's
inline constexpr int kExitInterrupted = 130;

struct Globals {
  JobClientOptions client;
  bool json = false;
  std::string token_file;  // client.token is read from it
  std::string tls_dir;     // common/rpc/credentials.h; the daemons of `cairn up` and `cairn run` use the same
};

struct SubmitOptions {
  std::string file;
  std::string model;  // a file that replaces the job's model
  std::vector<std::string> settings;
  bool watch = false;
  bool dry_run = false;  // check everything, queue nothing
  bool once =
      false;  // if a job of this name was submitted before, use that one instead, unless it failed or was cancelled
};
struct SweepCommandOptions {
  SubmitOptions submit;  // file: empty to go on with the sweep of `folder`
  SweepFlags flags;
  int max_parallel = 4;
  std::string folder;  // empty: NAME-sweep
  bool cancel_on_interrupt = false;
  bool dry_run = false;  // list the trials and end
};
struct JobsOptions {
  int64_t limit = 0;                // the newest so many; 0: all
  std::vector<std::string> states;  // empty: all
  bool names = false;               // print the names alone
  bool mine = false;                // those of the user in this process' certificate or token
};
struct HealthOptions {
  std::string address;  // of any daemon; empty: the coordinator
  std::string node;     // instead ask the coordinator whether this node is alive and ready
  bool ready = false;   // of a ps: also ask whether its copies are in sync
};
struct DrainOptions {
  std::string name;
  bool undo = false;
};
struct LogsOptions {
  std::string name;            // of a node or a job, or a job's number; empty: the coordinator
  std::string node;            // instead of `name`: a node that is called like a job
  std::string level = "info";  // these lines and worse ones
  int64_t tail = 1000;         // the newest so many lines of each daemon
  bool follow = false;
};
struct EventsOptions {
  std::string job, node;  // of these only; empty: all
  bool warnings = false;  // warnings only
  int64_t limit = 0;      // the newest so many; 0: all that are kept
  bool follow = false;
};
struct TraceOptions {
  std::string job;
  int64_t steps = 10;
  int64_t seconds = 60;  // nodes record at most so long
  std::string output;
};
struct ReplayCommandOptions {
  std::string job;
  std::optional<int64_t> step;  // from 0; with find_nan: the last one that is looked at, unset: the job's last
  bool find_nan = false;
  std::string checkpoint;       // a checkpoint, or a folder of several, on this machine; empty: the job's
  std::string data;             // of the job, as it lies on this machine; empty: data.path
  std::string device = "auto";  // the kind that the job ran on; else as cairn-worker --device
  std::string bin_dir;          // where cairn-replay is
};
struct CreateTokenOptions {
  std::string name, user;
  std::vector<std::string> groups;
  std::string role = "user";  // or admin
  std::string expires = "90d";
  std::string output;  // a new file for the token; empty: standard output
};
struct MetricsOptions {
  std::string output;  // rewritten every every_s seconds until a signal; empty: printed once
  int every_s = 15;
};
struct TopCommandOptions {
  int every_s = 2;
  bool once = false;  // print one screen of any size, and end; as where stdout is no terminal
};
struct PredictOptions {
  EvaluateOptions what;
  std::string output = "-";  // .csv, .npy or .jsonl; "-": standard output
  bool classes = false;
};
struct ExportOptions {
  std::string job;
  std::string format;  // empty: by the output's file extension
  std::string layout = "keras";
  std::string output;
  bool fold_batch_norm = false;
};
struct ModelsOptions {
  std::string name;                       // empty: all models
  bool report = false;                    // report on every layer of the file `name`, supported or refused
  std::vector<std::string> input_shapes;  // 128,128,3 or NAME=128,128,3
  int32_t classes = 0;
};
struct MakeDataOptions {
  std::string kind;  // "glyphs"
  std::string dir;
  int64_t count = 60000;
  int64_t test_count = 10000;
  uint64_t seed = 1;
};

// The columns of a CSV data set that no job describes.
struct CsvOptions {
  std::string label;               // data.label_column; empty: the last one
  std::string header;              // data.header, true or false; empty: found out
  std::vector<std::string> texts;  // columns of texts, besides those that are found out
};

struct DataInfoOptions {
  std::string path;
  CsvOptions csv;
};

struct ConvertDataOptions {
  std::string in, out;
  std::string split;
  int shards = 1;
  bool gzip = false;
  CsvOptions csv;
};

struct AdaptOptions {
  std::string model;
  std::vector<std::string> data;      // empty: the job's
  std::vector<std::string> settings;  // of the job, as in SubmitOptions
  std::string output;
};

struct BenchExchangeOptions {
  int64_t bytes = int64_t{64} << 20;
  int64_t partition_bytes = int64_t{4} << 20;
  int rounds = 30;
  int streams = 2;            // per connection to the ps
  bool shared_memory = true;  // with a ps on this host
  bool asynchronous = false;
  bool logged = false;
  std::string address;  // of a `--serve`; empty: child processes on this machine
  std::string serve;    // host:port: serve the other side, until Ctrl-C
  std::string dir;      // data of the served ps; empty: a temporary directory
  std::string bin_dir;  // where the daemons' programs are
};

// job.file: the chief submits this job; every task ends when it does. Empty: none.
int RunRun(const Globals& globals, const TfRunOptions& options, const SubmitOptions& job);
int RunUp(const Globals& globals, const LocalClusterOptions& options);
// The job of a file with --model and --set, its paths absolute. Errors: INVALID_ARGUMENT, NOT_FOUND.
absl::StatusOr<v1::JobSpec> ReadSubmittedJob(const SubmitOptions& options);
int RunSubmit(const Globals& globals, const SubmitOptions& options);
int RunSweep(const Globals& globals, const SweepCommandOptions& options);
int RunJobs(const Globals& globals, const JobsOptions& options);
// field: a path or a name; explain.h.
int RunExplain(const std::string& field);
int RunJob(const Globals& globals, const std::string& job);
int RunWatch(const Globals& globals, const std::string& job);
int RunCancel(const Globals& globals, const std::string& job);
int RunDelete(const Globals& globals, const std::string& job);
int RunNodes(const Globals& globals);
int RunCreateToken(const Globals& globals, const CreateTokenOptions& options);
int RunListTokens(const Globals& globals);
int RunRevokeToken(const Globals& globals, const std::string& id);
int RunWhoAmI(const Globals& globals);
int RunMetrics(const Globals& globals, const MetricsOptions& options);
int RunLogs(const Globals& globals, const LogsOptions& options);
int RunEvents(const Globals& globals, const EventsOptions& options);
int RunTrace(const Globals& globals, const TraceOptions& options);
int RunReplay(const Globals& globals, const ReplayCommandOptions& options);  // becomes cairn-replay
int RunTop(const Globals& globals, const TopCommandOptions& options);
int RunDrain(const Globals& globals, const DrainOptions& options);
int RunEvaluate(const Globals& globals, const EvaluateOptions& options);
int RunPredict(const Globals& globals, const PredictOptions& options);
int RunExport(const Globals& globals, const ExportOptions& options);
int RunModels(const Globals& globals, const ModelsOptions& options);
int RunMakeData(const Globals& globals, const MakeDataOptions& options);
int RunConvertData(const Globals& globals, const ConvertDataOptions& options);
int RunAdaptData(const Globals& globals, const AdaptOptions& options);
int RunDataInfo(const Globals& globals, const DataInfoOptions& options);
int RunBenchExchange(const Globals& globals, const BenchExchangeOptions& options);
int RunHealth(const Globals& globals, const HealthOptions& options);

// Prints "cairn: message" and returns the matching exit code.
int Fail(const absl::Status& status);
// Flushes standard output, which may still be buffered and may not fit on its disk. Returns the exit code then.
int CloseOutput(int code);

}  // namespace cairn
