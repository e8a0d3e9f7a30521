// Writes a run as an offline run of Weights & Biases: nothing is sent, `wandb sync FOLDER` does that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prun/observer.hpp"
#include "scalars.hpp"

namespace prun::wandb {

// ------------------------------------------------------------------- transaction log
// Writes the log of a run as Weights & Biases keeps it on disk, which `wandb sync` uploads and `wandb leet`
// shows: a head of seven bytes, then records in blocks of 32 KiB as LevelDB's log has them, with CRC-32 for
// checksums. A record's payload is a message `Record` of wandb_internal.proto.

struct RunFacts {
  std::string id, project, name, group, host;
  double time = 0;                                          // when the run began, in seconds since 1970
  std::vector<std::pair<std::string, std::string>> config;  // has values as JSON
};

// These make messages of type Record; their number is that of the record in its file, from 1 on.
std::string header_record(std::int64_t number);
std::string run_record(std::int64_t number, const RunFacts& facts);
std::string history_record(std::int64_t number, std::int64_t step, const Scalars& row);
std::string summary_record(std::int64_t number, const Scalars& row);
std::string exit_record(std::int64_t number, bool failed, double seconds);

// Returns a text such as "0.001" or "NaN".
std::string json_of(double number);

std::uint32_t crc32(std::string_view bytes);

// Appends records; throws storage, naming the path.
class TransactionLog {
 public:
  // Makes a new file, in a folder that exists.
  explicit TransactionLog(std::string path);
  ~TransactionLog();
  TransactionLog(const TransactionLog&) = delete;
  TransactionLog& operator=(const TransactionLog&) = delete;

  void add(std::string_view record);

 private:
  void write(std::string_view bytes);
  [[noreturn]] void fail(const char* action) const;

  std::string path_;
  int descriptor_ = -1;
  std::size_t in_block_ = 0;
};

// ------------------------------------------------------------------- wandb observer

class WandbObserver final : public Observer {
 public:
  explicit WandbObserver(const Options& options);

  // All these throw storage when the file cannot be written.
  void start(const RunInfo& info) override;
  void step(const StepInfo& info) override;
  void evaluation(const EvaluationInfo& info) override;
  void event(EventKind kind, std::string_view message) override;
  void finish(const FinishInfo& info) override;

 private:
  void add(std::int64_t step, const Scalars& scalars);
  void write_row();
  void end(bool failed);

  std::string path_, project_;
  std::optional<TransactionLog> log_;
  FlopRates rates_;
  double begin_ = 0;
  std::int64_t records_ = 0, step_ = 0;
  Scalars row_;  // holds those of step_: evaluations come behind the step, and a step has one row
};

}  // namespace prun::wandb
