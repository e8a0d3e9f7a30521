// Writes one record for each call.
#include "jsonl_observer.hpp"

#include <charconv>
#include <optional>

#include "json_object.hpp"
#include "tally_summary.hpp"

namespace prun::jsonl {

namespace {

JsonObject record(const char* type) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  JsonObject object;
  object.text("type", type).number("time", static_cast<double>(milliseconds) / 1000);
  return object;
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

// Writes a tally by layer.
JsonObject tally_object(const TallyInfo& tally) {
  JsonObject object;
  if (is_listed_whole(tally)) {
    const std::int64_t columns = columns_of(tally);
    for (std::int64_t column = 0; column < columns; ++column) {
      std::vector<double> numbers;
      for (std::int64_t layer = 0; layer < tally.layers; ++layer)
        numbers.push_back(tally.numbers.data[layer * columns + column]);
      object.numbers(std::to_string(column), numbers);
    }
    return object;
  }
  std::vector<double> sum, least, most;
  for (std::int64_t layer = 0; layer < tally.layers; ++layer) {
    const TallySummary of_layer = summary_of(tally, layer);
    sum.push_back(of_layer.sum);
    least.push_back(of_layer.least);
    most.push_back(of_layer.most);
  }
  return object.numbers("sum", sum).numbers("least", least).numbers("most", most);
}

JsonObject losses_object(const Array<EvaluatedLoss>& losses) {
  JsonObject object;
  for (const EvaluatedLoss& one : losses)
    object.object(one.name.view(), JsonObject().number("loss", one.loss).integer("targets", one.targets));
  return object;
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
                    .text("name", info.name.view())
                    .text("folder", info.folder.view())
                    .text("recipe", info.recipe.view())
                    .text("device", info.device.view())
                    .integer("steps", info.steps)
                    .integer("first_step", info.first_step)
                    .integer("parameters", info.parameters)
                    .integer("tokens_per_step", info.tokens_per_step)
                    .number("flops_per_token", info.flops_per_token)
                    .number("peak_flops", info.peak_flops)
                    .integer("plan_bytes", info.plan_bytes)
                    .str());
  flush();
}

void JsonlObserver::step(const StepInfo& info) {
  JsonObject line = record("step");
  line.integer("step", info.step)
      .number("loss", info.loss)
      .number("grad_norm", info.grad_norm)
      .number("lr", info.lr)
      .flag("kept", info.kept)
      .integer("targets", info.targets)
      .integer("tokens", info.tokens)
      .number("seconds", info.seconds)
      .number("elapsed", info.elapsed)
      .integer("steps", steps_);
  if (info.seconds > 0) {
    const double rate = static_cast<double>(info.tokens) / info.seconds;
    line.number("tokens_per_second", rate);
    if (peak_flops_ > 0) line.number("mfu", rate * flops_per_token_ / peak_flops_);
  }
  if (info.loss_scale > 0) line.number("loss_scale", info.loss_scale);
  if (info.save_seconds > 0) line.number("save_seconds", info.save_seconds);
  if (info.compare_seconds > 0) line.number("compare_seconds", info.compare_seconds);
  if (info.exposed_seconds >= 0)
    line.number("exposed_seconds", info.exposed_seconds)
        .number("exposed_share", info.exposed_seconds / info.seconds);
  if (info.watts > 0)
    line.number("watts", info.watts)
        .number("clock_mhz", info.clock_mhz)
        .number("joules_per_token", info.joules / static_cast<double>(info.tokens));
  if (info.losses.size > 0) line.object("losses", losses_object(info.losses));
  for (const TallyInfo& tally : info.tallies) line.object(tally.name.view(), tally_object(tally));
  file().append(line.str());
  if (Clock::now() - flushed_at_ >= flush_interval_) flush();
}

void JsonlObserver::evaluation(const EvaluationInfo& info) {
  JsonObject line = record("evaluation");
  line.integer("step", info.step)
      .number("eval_loss", info.loss)
      .integer("targets", info.targets)
      .number("seconds", info.seconds);
  if (info.averaged) line.number("averaged_loss", info.averaged_loss);
  if (info.sets.size > 0) line.object("sets", losses_object(info.sets));
  file().append(line.str());
  flush();
}

void JsonlObserver::event(EventKind kind, std::string_view message) {
  JsonObject line = record("event");
  line.text("kind", name_of(kind)).text("message", message);
  if (const auto step = kind == EventKind::saved ? step_of(message) : std::nullopt)
    line.integer("step", *step);
  file().append(line.str());
  flush();
}

void JsonlObserver::finish(const FinishInfo& info) {
  std::vector<JsonObject> ranks;
  for (const RankMemory& memory : info.memory) {
    JsonObject rank;
    rank.integer("plan_bytes", memory.plan_bytes)
        .integer("process_bytes", memory.process_bytes)
        .integer("peak_bytes", memory.peak_bytes);
    if (memory.device_bytes > 0)
      rank.integer("device_plan_bytes", memory.device_plan_bytes)
          .integer("device_process_bytes", memory.device_process_bytes)
          .integer("device_bytes", memory.device_bytes);
    ranks.push_back(rank);
  }
  JsonObject line = record("finish");
  line.objects("memory", ranks);
  if (info.save_seconds > 0) line.number("save_seconds", info.save_seconds);
  file().append(line.str());
  flush();
}

}  // namespace prun::jsonl
