// cairn: submits jobs, watches them, runs a local cluster. Only this file parses flags; it fills in the options of
// commands.h.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/add_command.h"
#include "client/cli/commands.h"
#include "client/cli/completion.h"
#include "client/cli/csv_flags.h"
#include "client/cli/node_flags.h"
#include "client/cli/replay_flags.h"
#include "client/cli/sweep_flags.h"
#include "client/cli/up_flags.h"
#include "client/cli/usage_error.h"
#include "client/cli/weights_flags.h"
#include "common/base/version.h"
#include "common/rpc/credentials.h"
#include "common/rpc/daemon.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/token.h"

namespace cairn {

namespace {

// Everything that flags fill in. `run` executes the given command.
struct Invocation {
  Globals globals;
  LocalClusterOptions up;
  SubmitOptions submit;
  SweepCommandOptions sweep;
  EvaluateOptions evaluate;
  PredictOptions predict;
  TfRunOptions tf_run;
  ExportOptions export_options;
  ReplayCommandOptions replay;
  ModelsOptions models;
  MakeDataOptions make_data;
  ConvertDataOptions convert_data;
  DataInfoOptions data_info;
  JobsOptions jobs;
  AdaptOptions adapt_data;
  std::string job;
  std::string path;
  std::vector<std::string> words;
  NodeCommandOptions nodes;
  BenchExchangeOptions bench;
  std::function<int()> run;
};

CLI::App* AddCommand(CLI::App& parent, const char* name, const char* help, Invocation& call, std::function<int()> run) {
  return cairn::AddCommand(parent, name, help, &call.run, std::move(run));
}

// Flags that modify the job of a file.
void AddJobChanges(CLI::App* command, SubmitOptions* options) {
  command
      ->add_option("--set", options->settings, "PATH=VALUE: set a field of the job, such as optimizer.adam.beta_1=0.8")
      ->allow_extra_args(false);
  command->add_option("--model", options->model, "The model from this file: Keras' model.json, .keras, .h5 or .onnx")
      ->check(CLI::ExistingFile);
}

void AddUp(CLI::App& app, Invocation& call) {
  CLI::App* up = AddCommand(app, "up", "Run a whole cluster on this machine, until Ctrl-C", call,
                            [&call] { return RunUp(call.globals, call.up); });
  AddUpFlags(up, &call.up);
}

void AddRun(CLI::App& app, Invocation& call) {
  CLI::App* run = AddCommand(app, "run", "Run what TF_CONFIG names for this container: ps, worker, chief or evaluator",
                             call, [&call] { return RunRun(call.globals, call.tf_run, call.submit); });
  call.tf_run.dir = "cairn-data";
  run->add_option("--dir", call.tf_run.dir, "Data of the daemons; a cluster with the same directory resumes")
      ->capture_default_str();
  run->add_option("--slots", call.tf_run.slots, "Replicas that a worker computes at once; 0: the machine's threads")
      ->capture_default_str();
  run->add_option("--log-level", call.tf_run.log_level, "debug, info, warning or error")->capture_default_str();
  run->add_option("--job", call.submit.file, "The chief, or worker 0, submits this job once and ends with it");
  AddJobChanges(run, &call.submit);
}

void AddJobCommands(CLI::App& app, Invocation& call) {
  CLI::App* submit =
      AddCommand(app, "submit", "Submit a job", call, [&call] { return RunSubmit(call.globals, call.submit); });
  submit->add_option("FILE", call.submit.file, "The job: a JobSpec as text protobuf or JSON")->required();
  AddJobChanges(submit, &call.submit);
  submit->add_flag("--watch", call.submit.watch, "Show its progress until it ends");
  submit->add_flag("--dry-run", call.submit.dry_run,
                   "Check the job, its data and its paths, and say what it would take; submit nothing");
  submit->add_flag("--once", call.submit.once, "Use an existing job of this name unless it failed");
  CLI::App* jobs = AddCommand(app, "jobs", "List the jobs", call, [&call] { return RunJobs(call.globals, call.jobs); });
  jobs->add_option("--limit", call.jobs.limit, "The newest so many jobs [all]")->check(CLI::Range(1, 1000000));
  jobs->add_option("--state", call.jobs.states, "Jobs in these states only, such as running,failed")->delimiter(',');
  jobs->add_flag("--mine", call.jobs.mine, "Jobs of the user in your token or certificate only");
  jobs->add_flag("--names", call.jobs.names, "The names alone, one per line");
  const auto add_with_job = [&](const char* name, const char* help, int (*run)(const Globals&, const std::string&)) {
    AddJobArgument(AddCommand(app, name, help, call, [&call, run] { return run(call.globals, call.job); }), &call.job);
  };
  add_with_job("job", "Show a job: state, figures, placement, digest", RunJob);
  add_with_job("watch", "Show a job's progress until it ends", RunWatch);
  add_with_job("cancel", "Cancel a job; its current weights are kept", RunCancel);
  add_with_job("delete", "Delete an ended job and its weights", RunDelete);
  CLI::App* evaluate = AddCommand(app, "evaluate", "Loss and metrics of a job's weights", call,
                                  [&call] { return RunEvaluate(call.globals, call.evaluate); });
  AddEvaluateFlags(evaluate, &call.evaluate);
  AddPredictFlags(AddCommand(app, "predict", "The model's outputs for the examples of a split", call,
                             [&call] { return RunPredict(call.globals, call.predict); }),
                  &call.predict);
  CLI::App* replay = AddCommand(app, "replay", "Compute a step of a job again, here, and compare the bits", call,
                                [&call] { return RunReplay(call.globals, call.replay); });
  AddJobArgument(replay, &call.replay.job);
  AddReplayFlags(replay, &call.replay);
  AddExportFlags(AddCommand(app, "export", "Write a job's weights to a file", call,
                            [&call] { return RunExport(call.globals, call.export_options); }),
                 &call.export_options);
}

void AddSweep(CLI::App& app, Invocation& call) {
  CLI::App* sweep = AddCommand(app, "sweep", "Train many variants of a job, and compare them", call,
                               [&call] { return RunSweep(call.globals, call.sweep); });
  sweep->add_option("FILE", call.sweep.submit.file, "The job, as for submit [the sweep of --output goes on]");
  AddJobChanges(sweep, &call.sweep.submit);
  AddSweepFlags(sweep, &call.sweep);
}

void AddModels(CLI::App& app, Invocation& call) {
  CLI::App* models = AddCommand(app, "models", "List the ready-made models, or show the layers of one", call,
                                [&call] { return RunModels(call.globals, call.models); });
  models->add_option("NAME", call.models.name, "Show this one, or the model of a .keras, .h5, .json or .onnx file");
  models
      ->add_option("--input-shape", call.models.input_shapes,
                   "HEIGHT,WIDTH,CHANNELS [the model's own]; of a file: closes its open dimensions; of one of several "
                   "inputs: NAME=HEIGHT,WIDTH,CHANNELS")
      ->allow_extra_args(false);
  models->add_option("--classes", call.models.classes, "Number of classes [the model's own]");
  models->add_flag("--report", call.models.report,
                   "For a file: every layer, whether it is supported and why not, even if the model is refused");
}

void AddData(CLI::App& app, Invocation& call) {
  CLI::App* data = app.add_subcommand("data", "Data sets on this machine");
  data->require_subcommand(1);
  data->fallthrough();
  CLI::App* make = AddCommand(*data, "make", "Generate a data set", call,
                              [&call] { return RunMakeData(call.globals, call.make_data); });
  make->add_option(
          "KIND", call.make_data.kind,
          "glyphs: drawn digits, 28x28 grey; colour-glyphs: 32x32x3, as CIFAR-10; texts: word numbers, four topics; "
          "sentences: the same in letters, CSV")
      ->required();
  make->add_option("DIR", call.make_data.dir, "Output folder")->required();
  make->add_option("--count", call.make_data.count, "Training examples")->capture_default_str();
  make->add_option("--test-count", call.make_data.test_count, "Test examples")->capture_default_str();
  make->add_option("--seed", call.make_data.seed, "Seed of the random examples")->capture_default_str();
  CLI::App* convert = AddCommand(*data, "convert", "Write a data set as TFRecord files of tf.train.Example", call,
                                 [&call] { return RunConvertData(call.globals, call.convert_data); });
  convert->add_option("IN", call.convert_data.in, "The data set: IDX, CIFAR-10, CSV or folders of pictures or texts")
      ->required();
  convert->add_option("OUT", call.convert_data.out, "A folder, or a file's name with .tfrecord[.gz] for one split")
      ->required();
  convert->add_option("--split", call.convert_data.split, "only train, validation or test [all]")
      ->check(CLI::IsMember({"train", "validation", "test"}));
  convert->add_option("--shards", call.convert_data.shards, "Files of each split")->capture_default_str();
  convert->add_flag("--gzip", call.convert_data.gzip, "Compress the files (readers then unpack them into memory)");
  AddCsvFlags(convert, &call.convert_data.csv);
  CLI::App* adapt = AddCommand(*data, "adapt", "Compute vocabularies, bins and means of data, as Keras' adapt()", call,
                               [&call] { return RunAdaptData(call.globals, call.adapt_data); });
  adapt->add_option("MODEL", call.adapt_data.model, "A .json, .keras or .h5 file, or a job (text protobuf)")
      ->required();
  adapt->add_option("DATA", call.adapt_data.data,
                    "Files or folders, whose training examples are used [the job's data]");
  adapt->add_option("--set", call.adapt_data.settings, "FIELD=VALUE of the job, as in submit: data.label_column=topic")
      ->allow_extra_args(false);
  adapt->add_option("-o,--output", call.adapt_data.output, "The model with its layers' state, .json")->required();
  CLI::App* info = AddCommand(*data, "info", "Describe a data set: kind, counts, shapes, classes", call,
                              [&call] { return RunDataInfo(call.globals, call.data_info); });
  info->add_option("PATH", call.data_info.path, "File or directory")->required();
  AddCsvFlags(info, &call.data_info.csv);
}

// `cairn help nodes drain`.
int PrintHelp(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  std::string name = "cairn";
  for (const std::string& word : words) {
    const auto below = command->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; });
    if (below.empty()) {
      return Fail(absl::InvalidArgumentError(
          absl::StrFormat("there is no command \"%s %s\"; `%s --help` lists them", name, word, name)));
    }
    command = below[0];
    name += " " + word;
  }
  absl::PrintF("%s", command->help(command == &app ? "" : name.substr(0, name.rfind(' '))));
  return kExitOk;
}

void AddHelp(CLI::App& app, Invocation& call) {
  AddCommand(app, "explain", "Say what a field of a job is", call, [&call] { return RunExplain(call.path); })
      ->add_option("FIELD", call.path,
                   "As for --set, such as optimizer.adam; or a message's or an enum's name, such as Conv2D [the job]");
  AddCommand(app, "help", "Show what --help of a command shows", call, [&] {
    return PrintHelp(app, call.words);
  })->add_option("COMMAND", call.words, "The command's words");
  AddCommand(app, "completion", "Print the script that lets a shell complete commands", call,
             [&] {
               const auto script = CompletionScript(app, call.path);
               if (!script.ok()) return Fail(script.status());
               absl::PrintF("%s", *script);
               return kExitOk;
             })
      ->add_option("SHELL", call.path, "bash, zsh or fish")
      ->required();
}

void AddVersion(CLI::App& app, Invocation& call) {
  AddCommand(app, "version", "Print the version", call, [] {
    absl::PrintF("cairn %s\n", ProgramVersion());
    return kExitOk;
  });
}

void AddBench(CLI::App& app, Invocation& call) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine or the network to another");
  bench->require_subcommand(1);
  bench->fallthrough();
  BenchExchangeOptions& o = call.bench;
  CLI::App* exchange =
      AddCommand(*bench, "exchange", "Compare push+pull of parameters with a raw gRPC stream of the same bytes", call,
                 [&call] { return RunBenchExchange(call.globals, call.bench); });
  exchange->add_option("--bytes", o.bytes, "Parameters, such as 64MiB [64 MiB]")->transform(CLI::AsSizeValue(false));
  exchange->add_option("--partition-bytes", o.partition_bytes, "Size of a partition [4 MiB]")
      ->transform(CLI::AsSizeValue(false));
  exchange->add_option("--rounds", o.rounds, "Measured rounds")->check(CLI::Range(1, 100000))->capture_default_str();
  exchange->add_flag("!--no-shared-memory", o.shared_memory, "Exchange through the socket also with a ps on this host");
  exchange->add_option("--streams", o.streams, "Streams of the connection to the ps")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  exchange->add_flag("--asynchronous", o.asynchronous, "Asynchronous updates, as with strategy PARAMETER_SERVER");
  exchange->add_flag("--logged", o.logged, "The ps logs every update before it answers");
  CLI::Option* address =
      exchange->add_option("--address", o.address, "host:port of a `--serve` on another machine [one is started here]");
  exchange->add_option("--serve", o.serve, "host:port: serve the other side of an --address, until Ctrl-C")
      ->excludes(address);
  exchange->add_option("--dir", o.dir, "With --serve: directory of the ps' data [a temporary one]");
}

std::string FolderOfThisProgram() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

// Daemons that this program starts inherit it through the environment.
absl::Status InitTls(const Globals& globals) {
  if (globals.tls_dir.empty()) return absl::OkStatus();
  std::error_code error;
  const std::string directory = std::filesystem::absolute(globals.tls_dir, error).string();
  setenv("CAIRN_TLS_DIR", directory.c_str(), 1);
  const auto notice = [](bool warning, const std::string& text) {
    if (warning) absl::FPrintF(stderr, "cairn: %s\n", text);
  };
  return UseTls(directory, kTlsRefresh, notice, globals.client.token.empty() ? TlsOwner::kUser : TlsOwner::kTokenUser);
}

// There is no flag for the token itself: every user of a machine can read the arguments of its programs.
absl::Status InitToken(Globals* globals) {
  if (!globals->token_file.empty()) {
    std::string open;
    CAIRN_ASSIGN_OR_RETURN(globals->client.token, ReadTokenFile(globals->token_file, &open));
    if (!open.empty()) absl::FPrintF(stderr, "cairn: %s\n", open);
    return absl::OkStatus();
  }
  const char* token = std::getenv("CAIRN_TOKEN");
  if (token == nullptr || *token == '\0') return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(globals->client.token, CheckToken(token, "$CAIRN_TOKEN"));
  return absl::OkStatus();
}

// Whether a token stands among the arguments, which must then not be repeated in an error.
bool HasTokenArgument(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--token" || absl::StartsWith(argument, "--token=")) return true;
  }
  return false;
}

int Main(int argc, char** argv) {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) SilenceGrpc();
  Invocation call;
  for (std::string* bin_dir : {&call.up.bin_dir, &call.tf_run.bin_dir, &call.bench.bin_dir, &call.replay.bin_dir})
    *bin_dir = FolderOfThisProgram();
  if (const char* address = std::getenv("CAIRN_COORDINATOR"); address != nullptr && *address != '\0') {
    call.globals.client.address = address;
  }
  CLI::App app{"Trains deep networks on a cluster: submit jobs, watch them, run a local cluster.", "cairn"};
  app.require_subcommand(1);
  app.add_option("--coordinator", call.globals.client.address,
                 "HOST:PORT; several separated by commas; also $CAIRN_COORDINATOR")
      ->capture_default_str();
  app.add_flag("--json", call.globals.json, "JSON for scripts, one object per line");
  app.add_option("--tls-dir", call.globals.tls_dir,
                 "Directory with ca.crt, tls.crt and tls.key (with a token ca.crt is enough): the cluster speaks TLS "
                 "[plain gRPC]")
      ->envname("CAIRN_TLS_DIR");
  app.add_option("--token-file", call.globals.token_file,
                 "File with a token of `cairn token create`: you are who it says [$CAIRN_TOKEN, a token itself]");
  app.set_version_flag("--version", absl::StrCat("cairn ", ProgramVersion()));
  AddUp(app, call);
  AddRun(app, call);
  AddJobCommands(app, call);
  AddSweep(app, call);
  AddModels(app, call);
  AddNodeCommands(app, call.globals, &call.nodes, &call.run);
  AddData(app, call);
  AddHelp(app, call);
  AddVersion(app, call);
  AddBench(app, call);
  if (argc == 1) return PrintHelp(app, {});
  if (HasTokenArgument(argc, argv)) {
    return Fail(absl::InvalidArgumentError(
        "--token: every user of this machine can read a program's arguments; put the token into a file and give "
        "--token-file, or into $CAIRN_TOKEN"));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error), kExitOk;  // --help, --version
    return Fail(absl::InvalidArgumentError(UsageError(app, error)));
  }
  absl::Status status = InitToken(&call.globals);
  status.Update(InitTls(call.globals));
  if (!status.ok()) return Fail(status);
  return call.run();
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::KeepStandardStreams();
  cairn::EndProcess(cairn::CloseOutput(cairn::Main(argc, argv)));
}
