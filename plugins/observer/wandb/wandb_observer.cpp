#include "wandb_observer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <system_error>

#include "prun/error.hpp"
#include "prun/json_writer.hpp"
#include "wire.hpp"

namespace prun::wandb {
namespace {

// ------------------------------------------------------------------- transaction log

using namespace wire;

// These are field numbers of wandb_internal.proto.
enum : std::uint32_t {
  record_number = 1,
  record_history = 2,
  record_summary = 3,
  record_run = 17,
  record_exit = 18,
  record_header = 21,
  run_id = 1,
  run_project = 3,
  run_config = 4,
  run_group = 6,
  run_display_name = 8,
  run_host = 13,
  run_start_time = 17,
  time_seconds = 1,
  time_nanos = 2,
  history_item = 1,
  history_step = 2,
  update = 1,
  item_key = 1,
  item_nested_key = 2,
  item_value_json = 16,
  step_number = 1,
  exit_code = 1,
  exit_runtime = 2,
  header_version = 1,
  version_producer = 1,
  version_min_consumer = 2
};

constexpr std::size_t block = 32768, head = 7;
enum class Piece : std::uint8_t { full = 1, first = 2, middle = 3, last = 4 };
constexpr std::string_view file_head("\x3aW&B\xe1\xbe\x00", 7);

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  constexpr std::uint32_t ethernet = 0xedb88320;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? ethernet : 0);
    table[byte] = rest;
  }
  return table;
}();

std::string record_of(std::int64_t number, std::uint32_t field, std::string_view message) {
  std::string record;
  append_number(record, record_number, number);
  append_bytes(record, field, message);
  return record;
}

void append_item(std::string& out, std::uint32_t key_field, std::string_view key, std::string_view json) {
  std::string item;
  append_bytes(item, key_field, key);
  append_bytes(item, item_value_json, json);
  append_bytes(out, update, item);
}

std::string items_of(const Scalars& row) {
  std::string items;
  for (const Scalar& scalar : row) append_item(items, item_nested_key, scalar.tag, json_of(scalar.value));
  return items;
}

}  // namespace

std::string json_of(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  std::array<char, 32> text{};
  return std::string(text.data(), std::to_chars(text.begin(), text.end(), number).ptr);
}

std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = crc_table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

// The least version that may read the log is the one that wandb's own logs have named for years.
std::string header_record(std::int64_t number) {
  std::string version, header;
  append_bytes(version, version_producer, "prun");
  append_bytes(version, version_min_consumer, "0.70.0");
  append_bytes(header, header_version, version);
  return record_of(number, record_header, header);
}

std::string run_record(std::int64_t number, const RunFacts& facts) {
  std::string run, config, time;
  append_bytes(run, run_id, facts.id);
  append_bytes(run, run_project, facts.project);
  for (const auto& [key, json] : facts.config) append_item(config, item_key, key, json);
  append_bytes(run, run_config, config);
  append_bytes(run, run_group, facts.group);
  append_bytes(run, run_display_name, facts.name);
  append_bytes(run, run_host, facts.host);
  const double whole = std::floor(facts.time);
  append_number(time, time_seconds, static_cast<std::int64_t>(whole));
  append_number(time, time_nanos, static_cast<std::int64_t>((facts.time - whole) * 1e9));
  append_bytes(run, run_start_time, time);
  return record_of(number, record_run, run);
}

std::string history_record(std::int64_t number, std::int64_t step, const Scalars& row) {
  std::string history = items_of(row), at;
  append_number(at, step_number, step);
  append_bytes(history, history_step, at);
  return record_of(number, record_history, history);
}

std::string summary_record(std::int64_t number, const Scalars& row) {
  return record_of(number, record_summary, items_of(row));
}

std::string exit_record(std::int64_t number, bool failed, double seconds) {
  std::string exit;
  if (failed) append_number(exit, exit_code, 1);
  append_number(exit, exit_runtime, static_cast<std::int64_t>(seconds));
  return record_of(number, record_exit, exit);
}

TransactionLog::TransactionLog(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("made");
  write(file_head);
  in_block_ = file_head.size();
}

TransactionLog::~TransactionLog() { ::close(descriptor_); }

// Writes a record in a piece for each block; a rest of a block that is too short for a piece's head is zeros.
void TransactionLog::add(std::string_view record) {
  std::string out;
  for (bool first = true, more = true; more; first = false) {
    if (block - in_block_ < head) {
      out.append(block - in_block_, '\0');
      in_block_ = 0;
    }
    const std::size_t room = block - in_block_ - head, count = std::min(room, record.size());
    more = count < record.size();
    const Piece piece = more ? first ? Piece::first : Piece::middle : first ? Piece::full : Piece::last;
    std::string body(1, static_cast<char>(piece));
    body += record.substr(0, count);
    append_fixed(out, crc32(body));
    append_fixed(out, static_cast<std::uint16_t>(count));
    out += body;
    record.remove_prefix(count);
    in_block_ = (in_block_ + head + count) % block;
  }
  write(out);
}

void TransactionLog::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail("written");
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void TransactionLog::fail(const char* action) const {
  throw_error(ErrorCode::storage, path_, ": the log cannot be ", action, " (", std::strerror(errno),
              "); free space there or give [[observer]] plugin = \"wandb\" another path");
}

namespace {

// ------------------------------------------------------------------- wandb observer

namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Makes an id in wandb's form; each process of a run has one of its own, and the run is their group.
std::string new_id() {
  constexpr std::string_view letters = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::random_device random;
  std::uniform_int_distribution<std::size_t> letter(0, letters.size() - 1);
  std::string id;
  while (id.size() < 8) id += letters[letter(random)];
  return id;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Returns "offline-run-20261126_061548-qxudysp0", by which `wandb sync` finds it.
std::string folder_name(double time, const std::string& id) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &parts);
  return std::string("offline-run-") + text.data() + "-" + id;
}

RunFacts facts_of(const RunInfo& info, const std::string& id, const std::string& project, double time) {
  RunFacts facts{id,   project, std::string(info.name.view()), std::string(info.name.view()), host_name(),
                 time, {}};
  const auto number = [&](const char* key, double value) { facts.config.emplace_back(key, json_of(value)); };
  const auto text = [&](const char* key, Text value) {
    facts.config.emplace_back(key,
                              JsonWriter(NonFinite::refuse, BrokenText::replace).value(value.view()).take());
  };
  text("recipe", info.recipe);
  text("folder", info.folder);
  text("device", info.device);
  number("steps", static_cast<double>(info.steps));
  number("first_step", static_cast<double>(info.first_step));
  number("parameters", static_cast<double>(info.parameters));
  number("tokens_per_step", static_cast<double>(info.tokens_per_step));
  return facts;
}

}  // namespace

WandbObserver::WandbObserver(const Options& options)
    : path_(options.text("path")), project_(options.text("project")) {}

void WandbObserver::start(const RunInfo& info) {
  begin_ = now();
  const std::string id = new_id();
  const fs::path within =
                     path_.empty() ? fs::path(std::string(info.folder.view())) / "wandb" : fs::path(path_),
                 folder = within / folder_name(begin_, id);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw_error(ErrorCode::storage, folder.string(), ": the folder for wandb cannot be made (",
                error.message(), "); give [[observer]] plugin = \"wandb\" another path");
  log_.emplace((folder / ("run-" + id + ".wandb")).string());
  log_->add(header_record(++records_));
  log_->add(run_record(++records_, facts_of(info, id, project_, begin_)));
  rates_ = {info.flops_per_token, info.peak_flops};
}

void WandbObserver::write_row() {
  if (row_.empty()) return;
  const double time = now();
  row_.push_back({"_step", static_cast<double>(step_)});
  row_.push_back({"_timestamp", time});
  row_.push_back({"_runtime", time - begin_});
  log_->add(history_record(++records_, step_, row_));
  log_->add(summary_record(++records_, row_));
  row_.clear();
}

void WandbObserver::add(std::int64_t step, const Scalars& scalars) {
  PRUN_CHECK(log_, "a record before the run has started");
  if (step != step_) write_row();
  step_ = step;
  row_.insert(row_.end(), scalars.begin(), scalars.end());
}

void WandbObserver::step(const StepInfo& info) { add(info.step, scalars_of(info, rates_)); }

void WandbObserver::evaluation(const EvaluationInfo& info) { add(info.step, scalars_of(info)); }

// Nothing is written behind a failure.
void WandbObserver::event(EventKind kind, std::string_view) {
  if (log_ && kind == EventKind::failed) end(true);
}

void WandbObserver::finish(const FinishInfo& info) {
  if (!log_) return;
  add(step_, scalars_of(info));
  end(false);
}

void WandbObserver::end(bool failed) {
  write_row();
  log_->add(exit_record(++records_, failed, now() - begin_));
  log_.reset();
}

}  // namespace prun::wandb
