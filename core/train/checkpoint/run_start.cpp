#include "train/checkpoint/run_start.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/text.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/kernel_choices.hpp"
#include "train/checkpoint/settings.hpp"
#include "train/checkpoint/weights.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ resume notes

// Reports what a resumed run takes from its checkpoint.

// Writes a text such as "optimizer.lr from 0.001 to 0.0005, ...".
std::string to_text(const std::vector<Change>& list) {
  constexpr std::size_t most = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(list.size(), most); ++i)
    text += detail::concat(i > 0 ? ", " : "", list[i].key, " from ", list[i].before, " to ", list[i].now);
  if (list.size() > most) text += detail::concat(" and ", list.size() - most, " more");
  return text;
}

bool is_layout(const std::string& key) {
  for (const char* start : {"mesh.", "strategy.", "comm.", "schedule.", "batch.micro"})
    if (key.starts_with(start)) return true;
  return false;
}

// Says whether a change of the key is reported: some keys change nothing of what is computed.
bool is_told(const std::string& key) {
  return !belongs_to_a_place(key) && (!key.starts_with("run.") || key == "run.steps" || key == "run.seed");
}

// Returns names such as "adamw" of plugins that both runs have, in another build.
std::vector<std::string> rebuilt(const std::string& before, const std::string& now) {
  const JsonValue then = parse_json(before, "plugins"), today = parse_json(now, "plugins");
  std::vector<std::string> names;
  for (const JsonValue& a : then.as_array())
    for (const JsonValue& b : today.as_array())
      if (a.at("kind").as_string() == b.at("kind").as_string() &&
          a.at("name").as_string() == b.at("name").as_string() && a.at("kind").as_string() != "observer" &&
          a.at("sha256").as_string() != b.at("sha256").as_string())
        names.push_back(a.at("kind").as_string() + " " + a.at("name").as_string());
  return names;
}

// Counts what this rank's devices chose and had chosen otherwise before, or not at all.
std::size_t other_choices(const Assembly& assembly, const KernelChoices& saved) {
  const std::string before = saved.for_rank(static_cast<std::size_t>(assembly.rank())),
                    now = kernel_choices(assembly);
  if (before.empty()) return 0;
  const std::vector<std::string_view> lines = prun::split(before, '\n'), made = prun::split(now, '\n');
  const std::set<std::string_view> known(lines.begin(), lines.end());
  return static_cast<std::size_t>(
      std::count_if(made.begin(), made.end(), [&](std::string_view line) { return !known.contains(line); }));
}

std::vector<std::string> arithmetic_of(const Assembly& assembly) {
  std::vector<std::string> texts;
  for (const DeviceInfo& device : assembly.device_infos()) texts.emplace_back(device.arithmetic.view());
  return texts;
}

// Says what a resumed run takes from the checkpoint, and what has changed since it was saved: a line each.
// `plugins` is from plugin_record().
std::vector<std::string> resume_notes(const Assembly& assembly, const LoadedCheckpoint& loaded,
                                      const std::string& plugins) {
  const Manifest& manifest = loaded.manifest;
  const Progress& progress = manifest.progress;
  std::vector<std::string> notes = {detail::concat(
      "goes on from ", loaded.folder.string(), ": tensors, step ", progress.step, ", ", progress.updates,
      " updates and ", progress.samples, " samples are its own, all else is the recipe's")};
  std::vector<Change> changed = changes(manifest.recipe, settings_of(assembly.recipe())), layout;
  std::erase_if(changed, [](const Change& change) { return !is_told(change.key); });
  std::copy_if(changed.begin(), changed.end(), std::back_inserter(layout),
               [](const Change& change) { return is_layout(change.key); });
  std::erase_if(changed, [](const Change& change) { return is_layout(change.key); });
  if (!changed.empty()) notes.push_back("changed since it was saved: " + to_text(changed));
  if (!layout.empty())
    notes.push_back("laid out otherwise, so that sums have another order: " + to_text(layout));
  if (const std::vector<std::string> names = rebuilt(manifest.plugins, plugins); !names.empty())
    notes.push_back("other builds of plugins than saved it: " + join(names, ", "));
  if (const std::vector<std::string> now = arithmetic_of(assembly); now != manifest.arithmetic)
    notes.push_back("computes other bits than the device that saved it: " + join(manifest.arithmetic, ", ") +
                    " was, " + join(now, ", ") + " is");
  else if (const std::size_t other = other_choices(assembly, manifest.choices); other > 0)
    notes.push_back(detail::concat("computes other bits: ", other,
                                   " of the kernels that were chosen by trying are others"));
  return notes;
}

// Says what is wrong with the checkpoint, or with those that were to come before it.
std::vector<std::string> resume_warnings(const LoadedCheckpoint& loaded) {
  std::vector<std::string> warnings;
  if (!loaded.note.empty()) warnings.push_back(loaded.note);
  for (const LoadedCheckpoint::Damaged& damaged : loaded.damaged)
    warnings.push_back(detail::concat("the checkpoint ", damaged.folder.string(), " cannot be used (",
                                      damaged.why, "); going on from the one before it, ",
                                      loaded.folder.string()));
  return warnings;
}

}  // namespace

RunStart::RunStart(const Assembly& assembly, const PlanMemory& memory, PluginHost& plugins,
                   const Announce& others, const LossScaler& scaler)
    : assembly_(assembly) {
  if (assembly.recipe().text("run.resume").empty()) {
    progress_.loss_scale = scaler.begin();
    initialize(memory, plugins);
  } else {
    load(memory, plugins, others);
    progress_.loss_scale = scaler.resumed(progress_.loss_scale);
  }
}

void RunStart::initialize(const PlanMemory& memory, PluginHost& plugins) {
  weights_ = open_start_values(assembly_, plugins);
  prun::initialize(assembly_, memory, weights_.get());
  if (weights_ && assembly_.rank() == 0 && has_base(assembly_.program()))
    base_ = weights_->content(host_threads(assembly_.device_info(), assembly_.mesh().world()));
}

void RunStart::load(const PlanMemory& memory, PluginHost& plugins, const Announce& others) {
  const std::unique_ptr<StartValues> base = open_base(assembly_.recipe(), assembly_.program(), plugins);
  loaded_ = load_checkpoint(assembly_, memory, assembly_.recipe().text("run.resume"), others, base.get());
  progress_ = loaded_->manifest.progress;
  base_ = loaded_->manifest.base;
}

std::vector<std::string> RunStart::notes(const std::string& plugins) const {
  if (loaded_) return resume_notes(assembly_, *loaded_, plugins);
  const std::string& init = assembly_.recipe().text("model.init");
  if (init.empty()) return {};
  return {"parameters start from " + init};
}

std::vector<std::string> RunStart::warnings() const {
  return loaded_ ? resume_warnings(*loaded_) : std::vector<std::string>{};
}

}  // namespace prun
