// Writes the log of a run as Weights & Biases keeps it on disk, which `wandb sync` uploads and `wandb leet`
// shows: a head of seven bytes, then records in blocks of 32 KiB as LevelDB's log has them, with CRC-32 for
// checksums. A record's payload is a message `Record` of wandb_internal.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scalars.hpp"

namespace prun::wandb {

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

}  // namespace prun::wandb
