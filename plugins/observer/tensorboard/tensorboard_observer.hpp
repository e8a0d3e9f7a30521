// Writes a run as scalars for TensorBoard, under the names that people search for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prun/observer.hpp"
#include "scalars.hpp"

namespace prun::tensorboard {

// ------------------------------------------------------------------- event file
// Writes a file of events as TensorBoard reads them: records of a length, a payload and their checksums,
// whose payloads are messages in the wire format of protocol buffers. Fields and numbers are those of
// TensorFlow's event.proto and summary.proto.

// Returns CRC-32C, rotated and moved as TensorFlow stores it, since a checksum of bytes that hold one is
// weak.
std::uint32_t masked_crc(std::string_view bytes);

// These make messages of type Event.
std::string version_event(double time);
// Tells readers that later steps in another file are done again.
std::string restart_event(double time, std::int64_t step);
std::string scalars_event(double time, std::int64_t step, const Scalars& scalars);

std::string record_of(std::string_view event);

// Appends records; throws storage, naming the path.
class EventFile {
 public:
  // Makes a new file in the folder, which is made too; its name says when, where and by which process it was
  // made.
  EventFile(const std::string& folder, double time);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void add(std::string_view event);
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* action) const;

  std::string path_;
  int descriptor_ = -1;
};

// ------------------------------------------------------------------- tensorboard observer

class TensorboardObserver final : public Observer {
 public:
  explicit TensorboardObserver(const Options& options);

  // All these throw storage when the file cannot be written.
  void start(const RunInfo& info) override;
  void step(const StepInfo& info) override;
  void evaluation(const EvaluationInfo& info) override;
  void finish(const FinishInfo& info) override;

 private:
  void add(std::int64_t step, const Scalars& scalars);

  std::string path_;  // empty: tensorboard in the run's folder
  std::optional<EventFile> file_;
  FlopRates rates_;
  std::int64_t last_step_ = 0;
};

}  // namespace prun::tensorboard
