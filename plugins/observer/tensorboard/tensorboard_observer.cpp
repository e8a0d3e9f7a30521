#include "tensorboard_observer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "prun/error.hpp"
#include "wire.hpp"

namespace prun::tensorboard {
namespace {

// ------------------------------------------------------------------- event file

// These are field numbers: those of an Event, of its summary, of the summary's values and of the session log.
enum : std::uint32_t {
  wall_time = 1,
  step_number = 2,
  file_version = 3,
  summary = 5,
  session_log = 7,
  summary_value = 1,
  value_tag = 1,
  value_simple = 2,
  session_status = 1
};
constexpr std::int64_t session_start = 1;
using namespace wire;

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  constexpr std::uint32_t castagnoli = 0x82f63b78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? castagnoli : 0);
    table[byte] = rest;
  }
  return table;
}();

std::string event_at(double time) {
  std::string event;
  append_key(event, wall_time, eight_bytes);
  append_fixed(event, std::bit_cast<std::uint64_t>(time));
  return event;
}

void append_step(std::string& event, std::int64_t step) { append_number(event, step_number, step); }

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string host = name.data();
  for (char& letter : host)
    if (letter == '/') letter = '_';
  return host;
}

std::string path_in(const std::string& folder, double time) {
  std::string seconds = std::to_string(static_cast<long long>(time));
  if (seconds.size() < 10) seconds.insert(0, 10 - seconds.size(), '0');
  return folder + "/events.out.tfevents." + seconds + "." + host_name() + "." + std::to_string(::getpid());
}

}  // namespace

std::uint32_t masked_crc(std::string_view text) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : text) crc = crc_table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

std::string version_event(double time) {
  std::string event = event_at(time);
  append_bytes(event, file_version, "brain.Event:2");
  return event;
}

std::string restart_event(double time, std::int64_t step) {
  std::string event = event_at(time), log;
  append_step(event, step);
  append_number(log, session_status, session_start);
  append_bytes(event, session_log, log);
  return event;
}

std::string scalars_event(double time, std::int64_t step, const Scalars& scalars) {
  std::string event = event_at(time), all;
  append_step(event, step);
  for (const Scalar& scalar : scalars) {
    std::string value;
    append_bytes(value, value_tag, scalar.tag);
    append_key(value, value_simple, four_bytes);
    append_fixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    append_bytes(all, summary_value, value);
  }
  append_bytes(event, summary, all);
  return event;
}

std::string record_of(std::string_view event) {
  std::string length, record;
  append_fixed(length, std::uint64_t{event.size()});
  record = length;
  append_fixed(record, masked_crc(length));
  record += event;
  append_fixed(record, masked_crc(event));
  return record;
}

EventFile::EventFile(const std::string& folder, double time) : path_(path_in(folder, time)) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_error(ErrorCode::storage, folder, ": the folder for TensorBoard cannot be made (", error.message(),
                "); give [[observer]] plugin = \"tensorboard\" another path");
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("opened");
}

EventFile::~EventFile() { ::close(descriptor_); }

void EventFile::add(std::string_view event) {
  const std::string record = record_of(event);
  std::string_view left = record;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno != EINTR) fail("written");
    if (written > 0) left.remove_prefix(static_cast<std::size_t>(written));
  }
}

void EventFile::fail(const char* action) const {
  throw_error(ErrorCode::storage, path_, ": the events cannot be ", action, " (", std::strerror(errno),
              "); free space there or give [[observer]] plugin = \"tensorboard\" another path");
}

namespace {

// ------------------------------------------------------------------- tensorboard observer

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TensorboardObserver::TensorboardObserver(const Options& options) : path_(options.text("path")) {}

// Another process of the run writes another file: steps that it does again replace those of the file before.
void TensorboardObserver::start(const RunInfo& info) {
  const double time = now();
  file_.emplace(path_.empty() ? std::string(info.folder.view()) + "/tensorboard" : path_, time);
  file_->add(version_event(time));
  if (info.first_step > 1) file_->add(restart_event(time, info.first_step));
  rates_ = {info.flops_per_token, info.peak_flops};
}

void TensorboardObserver::add(std::int64_t step, const Scalars& scalars) {
  PRUN_CHECK(file_, "a record before the run has started");
  if (!scalars.empty()) file_->add(scalars_event(now(), step, scalars));
}

void TensorboardObserver::step(const StepInfo& info) {
  last_step_ = info.step;
  add(info.step, scalars_of(info, rates_));
}

void TensorboardObserver::evaluation(const EvaluationInfo& info) { add(info.step, scalars_of(info)); }

void TensorboardObserver::finish(const FinishInfo& info) { add(last_step_, scalars_of(info)); }

}  // namespace prun::tensorboard
