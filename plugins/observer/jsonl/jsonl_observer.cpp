// Writes one record for each call.
#include "jsonl_observer.hpp"

#include <charconv>
#include <optional>

#include "prun/json_writer.hpp"
#include "tally_summary.hpp"

namespace prun::jsonl {

namespace {

// Begins a line. JSON has no word for numbers that are not finite: these become the strings "nan", "inf" and
// "-inf", so that a reader sees which it was.
JsonWriter record(const char* type) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  JsonWriter line(NonFinite::write_text, BrokenText::replace);
  line.begin_object().member("type", type).member("time", static_cast<double>(milliseconds) / 1000);
  return line;
}

const char* name_of(EventKind kind) {
  switch (kind) {
    case EventKind::note: return "note";
    case EventKind::warning: return "warning";
    case EventKind::saved: return "saved";
    case EventKind::stopped: return "stopped";
    case EventKind::failed: return "failed";
  }
  return "?";
}

// Reads the step of a checkpoint's folder, ".../step-00000100": training has gone on meanwhile.
std::optional<std::int64_t> step_of(std::string_view checkpoint) {
  constexpr std::string_view start = "/step-";
  const std::size_t at = checkpoint.rfind(start);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = checkpoint.substr(at + start.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return step;
}

std::string path_in(std::string_view folder) {
  if (folder.empty())
    throw_error(ErrorCode::storage,
                "the run has no folder to hold log.jsonl; set path of the jsonl observer");
  return std::string(folder) + "/log.jsonl";
}

// Writes a member with a number of each layer.
template <class Number>
void write_layers(JsonWriter& line, std::string_view name, const TallyInfo& tally, Number&& number) {
  line.name(name).begin_array();
  for (std::int64_t layer = 0; layer < tally.layers; ++layer) line.value(number(layer));
  line.end_array();
}

void write_tally(JsonWriter& line, const TallyInfo& tally) {
  line.name(tally.name.view()).begin_object();
  if (is_listed_whole(tally)) {
    const std::int64_t columns = columns_of(tally);
    for (std::int64_t column = 0; column < columns; ++column)
      write_layers(line, std::to_string(column), tally,
                   [&](std::int64_t layer) { return tally.numbers.data[layer * columns + column]; });
  } else {
    const auto write = [&](const char* name, double TallySummary::*part) {
      write_layers(line, name, tally, [&](std::int64_t layer) { return summary_of(tally, layer).*part; });
    };
    write("sum", &TallySummary::sum);
    write("least", &TallySummary::least);
    write("most", &TallySummary::most);
  }
  line.end_object();
}

void write_losses(JsonWriter& line, const char* name, const Array<EvaluatedLoss>& losses) {
  if (losses.size == 0) return;
  line.name(name).begin_object();
  for (const EvaluatedLoss& one : losses)
    line.name(one.name.view())
        .begin_object()
        .member("loss", one.loss)
        .member("targets", one.targets)
        .end_object();
  line.end_object();
}

}  // namespace

JsonlObserver::JsonlObserver(const Options& options)
    : path_(options.text("path")), flush_interval_(options.number("flush_seconds")) {}

LogFile& JsonlObserver::file() {
  PRUN_CHECK(file_, "a record before the start of the run");
  return *file_;
}

void JsonlObserver::flush() {
  file().flush();
  flushed_at_ = Clock::now();
}

void JsonlObserver::start(const RunInfo& info) {
  steps_ = info.steps;
  flops_per_token_ = info.flops_per_token;
  peak_flops_ = info.peak_flops;
  if (path_.empty())
    file_.emplace(path_in(info.folder.view()), Links::refused);
  else
    file_.emplace(path_);
  file_->append(record("start")
                    .member("name", info.name.view())
                    .member("folder", info.folder.view())
                    .member("recipe", info.recipe.view())
                    .member("device", info.device.view())
                    .member("steps", info.steps)
                    .member("first_step", info.first_step)
                    .member("parameters", info.parameters)
                    .member("tokens_per_step", info.tokens_per_step)
                    .member("flops_per_token", info.flops_per_token)
                    .member("peak_flops", info.peak_flops)
                    .member("plan_bytes", info.plan_bytes)
                    .end_object()
                    .take());
  flush();
}

void JsonlObserver::step(const StepInfo& info) {
  JsonWriter line = record("step");
  line.member("step", info.step)
      .member("loss", info.loss)
      .member("grad_norm", info.grad_norm)
      .member("lr", info.lr)
      .member("kept", info.kept)
      .member("targets", info.targets)
      .member("tokens", info.tokens)
      .member("seconds", info.seconds)
      .member("elapsed", info.elapsed)
      .member("steps", steps_);
  if (info.seconds > 0) {
    const double rate = static_cast<double>(info.tokens) / info.seconds;
    line.member("tokens_per_second", rate);
    if (peak_flops_ > 0) line.member("mfu", rate * flops_per_token_ / peak_flops_);
  }
  if (info.loss_scale > 0) line.member("loss_scale", info.loss_scale);
  if (info.save_seconds > 0) line.member("save_seconds", info.save_seconds);
  if (info.compare_seconds > 0) line.member("compare_seconds", info.compare_seconds);
  if (info.exposed_seconds >= 0)
    line.member("exposed_seconds", info.exposed_seconds)
        .member("exposed_share", info.exposed_seconds / info.seconds);
  if (info.watts > 0)
    line.member("watts", info.watts)
        .member("clock_mhz", info.clock_mhz)
        .member("joules_per_token", info.joules / static_cast<double>(info.tokens));
  write_losses(line, "losses", info.losses);
  for (const TallyInfo& tally : info.tallies) write_tally(line, tally);
  file().append(line.end_object().take());
  if (Clock::now() - flushed_at_ >= flush_interval_) flush();
}

void JsonlObserver::evaluation(const EvaluationInfo& info) {
  JsonWriter line = record("evaluation");
  line.member("step", info.step)
      .member("eval_loss", info.loss)
      .member("targets", info.targets)
      .member("seconds", info.seconds);
  if (info.averaged) line.member("averaged_loss", info.averaged_loss);
  write_losses(line, "sets", info.sets);
  file().append(line.end_object().take());
  flush();
}

void JsonlObserver::event(EventKind kind, std::string_view message) {
  JsonWriter line = record("event");
  line.member("kind", name_of(kind)).member("message", message);
  if (const auto step = kind == EventKind::saved ? step_of(message) : std::nullopt)
    line.member("step", *step);
  file().append(line.end_object().take());
  flush();
}

void JsonlObserver::finish(const FinishInfo& info) {
  JsonWriter line = record("finish");
  line.name("memory").begin_array();
  for (const RankMemory& memory : info.memory) {
    line.begin_object()
        .member("plan_bytes", memory.plan_bytes)
        .member("process_bytes", memory.process_bytes)
        .member("peak_bytes", memory.peak_bytes);
    if (memory.device_bytes > 0)
      line.member("device_plan_bytes", memory.device_plan_bytes)
          .member("device_process_bytes", memory.device_process_bytes)
          .member("device_bytes", memory.device_bytes);
    line.end_object();
  }
  line.end_array();
  if (info.save_seconds > 0) line.member("save_seconds", info.save_seconds);
  file().append(line.end_object().take());
  flush();
}

}  // namespace prun::jsonl
