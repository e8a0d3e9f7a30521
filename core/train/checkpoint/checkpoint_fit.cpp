#include "train/checkpoint/checkpoint_fit.hpp"

#include "plan/instances.hpp"

#include <algorithm>
#include <set>

#include "program/passes.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/settings.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {
namespace {

// Says whether a key decides which samples there are and in which order, so that a number of samples means
// something.
bool counts_samples(const std::string& key) {
  return key == "run.seed" || key == "model.seq" || key.starts_with("data.");
}

constexpr const char* moments_key = "precision.moments";

// Refuses other samples: some would be trained on twice, or never, without any sign of it.
void check_samples(const Manifest& manifest, const std::filesystem::path& folder, const Recipe& recipe) {
  const std::vector<std::string>& allowed = recipe.texts("run.changed");
  for (const Change& change : changes(manifest.recipe, settings_of(recipe)))
    if (counts_samples(change.key) && std::find(allowed.begin(), allowed.end(), change.key) == allowed.end())
      throw_error(ErrorCode::bad_input, change.key, " is ", change.now, ", ", folder.string(),
                  " was saved with ", change.before, ": the ", manifest.progress.samples,
                  " samples trained on so far would be counted among others; if that is meant, say so by "
                  "--set run.changed=",
                  change.key);
}

bool is_float_or_half(DType type) { return type == DType::f32 || type == DType::bf16; }

// Says whether moments are there in the other of two formats; the recipe must allow that, since bf16 loses
// bits.
bool converts_moment(DType had, const PersistentTensor& wanted, const Recipe& recipe) {
  const std::vector<std::string>& allowed = recipe.texts("run.changed");
  return wanted.moment && is_float_or_half(had) && is_float_or_half(wanted.type) &&
         std::find(allowed.begin(), allowed.end(), moments_key) != allowed.end();
}

// Says whether a strategy has added a parameter since, or what belongs to it.
bool is_new(const CheckpointFiles& files, const PersistentTensor& wanted, const Recipe& recipe) {
  if (wanted.added_by.empty() || files.tensors().contains(wanted.of_parameter)) return false;
  if (!may_be_new(recipe, wanted.added_by))
    throw_error(ErrorCode::bad_input, files.folder().string(), " has no tensor '", wanted.name, "'",
                how_it_may_be_new(recipe, wanted.added_by));
  return true;
}

// Says whether a state may begin anew, since the files have none of it, or of another layout.
bool begins_anew(const CheckpointFiles& files, const PersistentTensor& wanted, const Recipe& recipe) {
  if (wanted.starts_anew.empty() || has_alike(files, wanted.name, wanted.type, wanted.shape)) return false;
  if (wanted.on_resize && has_rows(files, wanted.name, wanted.type, wanted.shape) &&
      *wanted.on_resize != OnResize::refuse)
    return *wanted.on_resize == OnResize::anew;
  const std::vector<std::string>& allowed = recipe.texts("run.changed");
  if (std::find(allowed.begin(), allowed.end(), wanted.starts_anew) == allowed.end())
    throw_error(
        ErrorCode::bad_input, files.folder().string(),
        files.tensors().contains(wanted.name) ? " has in another shape '" : " has no tensor '", wanted.name,
        "', which ", wanted.starts_anew,
        " keeps for this layout; if it is to begin anew, say so by --set run.changed=", wanted.starts_anew);
  return true;
}

// Returns how many updates old the oldest weights of a parameter are: NAME.before, NAME.before2, ...
template <class Names>
std::int64_t oldest_of(const Names& names, const std::string& parameter) {
  std::int64_t updates = 0;
  while (names.contains(parameter + name_of_before(updates + 1))) ++updates;
  return updates;
}

// Checks that the files have a parameter's values before the last updates if the run trains with those, and
// only then.
void check_delay(const CheckpointFiles& files, const std::vector<PersistentTensor>& wanted) {
  std::set<std::string> names;
  for (const PersistentTensor& one : wanted) names.insert(one.name);
  for (const PersistentTensor& one : wanted) {
    if (one.name != one.of_parameter) continue;
    const std::int64_t had = oldest_of(files.tensors(), one.name), wants = oldest_of(names, one.name);
    if (had == wants) continue;
    if (std::max(had, wants) > 1 || (had > 0 && wants > 0))
      throw_error(ErrorCode::bad_input, files.folder().string(), " has '", one.name, "' as it was up to ",
                  had, had == 1 ? " update" : " updates", " before, and the recipe trains it with weights ",
                  wants, wants == 1 ? " update" : " updates",
                  " old; go on with the schedule and the stages that it was saved with, or start from its "
                  "weights by model.init");
    throw_error(
        ErrorCode::bad_input, files.folder().string(), had > 0 ? " was" : " was not",
        " trained with weights of one update before, as a schedule with delay=1 does, and the recipe ",
        had > 0 ? "does not" : "does",
        "; go on with the schedule that it was saved with, or start from its weights by model.init");
  }
}

void check_tensor(const CheckpointFiles& files, const PersistentTensor& wanted, const Recipe& recipe) {
  const auto found = files.tensors().find(wanted.name);
  if (found == files.tensors().end())
    throw_error(ErrorCode::bad_input, files.folder().string(), " has no tensor '", wanted.name,
                "'; the recipe's model, optimizer or precision differs from the saved run's");
  const CheckpointFiles::Tensor& had = found->second;
  const bool fits = had.type == wanted.type || converts_moment(had.type, wanted, recipe);
  if (!fits || had.shape != wanted.shape)
    throw_error(
        ErrorCode::bad_input, files.folder().string(), ": tensor '", wanted.name, "' is ",
        name_of(to_safetensors_type(had.type)), shape_text(had.shape), ", the recipe makes it ",
        name_of(to_safetensors_type(wanted.type)), shape_text(wanted.shape),
        wanted.moment && had.shape == wanted.shape && is_float_or_half(had.type) &&
                is_float_or_half(wanted.type)
            ? detail::concat("; if moments are to be converted, say so by --set run.changed=", moments_key)
            : "");
}

}  // namespace

bool has_alike(const CheckpointFiles& files, const std::string& name, DType type, const Extents& shape) {
  const auto found = files.tensors().find(name);
  return found != files.tensors().end() && found->second.type == type && found->second.shape == shape;
}

bool has_rows(const CheckpointFiles& files, const std::string& name, DType type, const Extents& shape) {
  const auto found = files.tensors().find(name);
  if (found == files.tensors().end() || found->second.type != type) return false;
  const Extents& had = found->second.shape;
  return had.size() == shape.size() && std::equal(had.begin() + 1, had.end(), shape.begin() + 1);
}

std::vector<PersistentTensor> has_tensors(const Assembly& assembly, const CheckpointFiles& files) {
  std::vector<PersistentTensor> wanted = persistent_tensors(assembly.program(), chain_of(assembly.program()));
  std::erase_if(wanted, [&](const PersistentTensor& one) {
    return is_new(files, one, assembly.recipe()) || begins_anew(files, one, assembly.recipe());
  });
  for (const PersistentTensor& tensor : wanted)
    if (tensor.on_resize != OnResize::sum) check_tensor(files, tensor, assembly.recipe());
  return wanted;
}

namespace {

// Counts the files' tensors that begin anew.
std::size_t left_out(const Assembly& assembly, const CheckpointFiles& files) {
  std::size_t count = 0;
  for (const PersistentTensor& one : persistent_tensors(assembly.program(), chain_of(assembly.program())))
    if (!one.starts_anew.empty() && one.on_resize != OnResize::sum && files.tensors().contains(one.name))
      count += has_alike(files, one.name, one.type, one.shape) ? 0 : 1;
  return count;
}

}  // namespace

void check_fits(const Assembly& assembly, const CheckpointFiles& files) {
  check_belongs(files.folder(), files.manifest());
  check_delay(files, persistent_tensors(assembly.program(), chain_of(assembly.program())));
  const std::vector<PersistentTensor> wanted = has_tensors(assembly, files);
  const std::size_t held = files.tensors().size() - left_out(assembly, files);
  if (wanted.size() != held)
    throw_error(ErrorCode::bad_input, files.folder().string(), " holds ", held, " tensors, the recipe needs ",
                wanted.size(), "; the recipe's model, optimizer or precision differs from the saved run's");
  check_samples(files.manifest(), files.folder(), assembly.recipe());
}

void check_sets(const LoadedCheckpoint& loaded, std::span<const SetSize> sets, const Recipe& recipe) {
  const std::vector<std::string>& allowed = recipe.texts("run.changed");
  for (const SetSize& before : loaded.manifest.sets)
    for (const SetSize& now : sets) {
      if (now.name != before.name || now == before) continue;
      if (std::any_of(allowed.begin(), allowed.end(),
                      [&](const std::string& key) { return key.starts_with(before.name + "."); }))
        continue;
      throw_error(ErrorCode::bad_input, before.name, " has ", now.samples, " samples of ", now.tokens,
                  " tokens, ", loaded.folder.string(), " was saved with ", before.samples, " of ",
                  before.tokens, ": files have changed, and the ", loaded.manifest.progress.samples,
                  " samples trained on so far would be counted among others; if that is meant, say so by "
                  "--set run.changed=",
                  before.name, ".path");
    }
}

}  // namespace prun
