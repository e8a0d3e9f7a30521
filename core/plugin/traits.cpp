// Keeps one table of all traits; what a note states is checked against it.
#include "plugin/traits.hpp"

#include <algorithm>
#include <vector>

#include "base/text.hpp"

namespace prun {
namespace {

constexpr std::string_view batch_model_sequence[] = {"batch", "model", "sequence"};
constexpr std::string_view yes_no[] = {"yes", "no"};
constexpr std::string_view exactness[] = {"exact", "rounds", "changes"};
constexpr std::string_view axis_kinds[] = {"own", "batch"};
constexpr std::string_view whole_split[] = {"whole", "split"};
constexpr std::string_view tensors_matrices[] = {"tensors", "matrices"};
constexpr std::string_view only_yes[] = {"yes"};
constexpr std::string_view only_training[] = {"training"};
constexpr std::string_view only_bytes[] = {"bytes"};
constexpr std::string_view only_masked[] = {"masked"};
constexpr std::string_view one_stages[] = {"1", "stages"};
constexpr std::string_view only_update[] = {"update"}, only_resumed[] = {"resumed"};
constexpr std::string_view masked_spans[] = {"masked", "spans"};

constexpr TraitRule rules[] = {
    {every_kind,
     "also",
     TraitForm::names,
     {},
     false,
     "What others call it: recipes that name it so are told its name"},
    {"model",
     "reads",
     TraitForm::names,
     {},
     false,
     "Kinds of Hugging Face directories that it reads, by model_type of their config.json"},
    {"model", "predicts", TraitForm::choice, masked_spans, false,
     "masked: it sees the tokens on both sides of each, and predicts those that data.mask hides; spans: its "
     "decoder writes what data.spans cuts out of what its encoder sees; without it, the next one"},
    {"model",
     "inputs",
     TraitForm::option,
     {},
     false,
     "Option of its section that says how many of a sample's tokens are the encoder's, the first ones"},
    {"model",
     "switches",
     TraitForm::option,
     {},
     false,
     "Option of its section that says, where it is not 0, in sequences of more positions than how many it "
     "computes all of them otherwise"},
    {"data", "predicts", TraitForm::choice, only_masked, false,
     "masked: its targets are tokens of the same position, which it hides by itself"},
    {"data",
     "token_bytes",
     TraitForm::number,
     {},
     false,
     "Bytes of memory that it holds of each token, from open() on; without it, it holds none of them"},
    {"data", "tokens", TraitForm::choice, only_bytes, false,
     "bytes: its tokens are the bytes of a text, so that prun generate writes and reads them as text"},
    {"data",
     "document_end",
     TraitForm::option,
     {},
     false,
     "Option of its section that is the number of the token that it puts between documents: recipes keep "
     "them apart by "
     "that one"},
    {"data",
     "tokenizer",
     TraitForm::option,
     {},
     false,
     "Option of its section that names the tokenizer.json of its tokens, or a folder with one: `prun data "
     "show` writes "
     "texts with it"},
    {"data",
     "template",
     TraitForm::option,
     {},
     false,
     "Option of its section that names the template of its conversations: `prun generate --chat` asks by it"},
    {"data",
     "date",
     TraitForm::option,
     {},
     false,
     "Option of its section that is the day which templates of conversations get for today, likewise"},
    {"data",
     "roles",
     TraitForm::names,
     {},
     false,
     "Roles that its targets may belong to, `Data::roles` says which: run.loss_by_role tells the loss of "
     "each"},
    {"strategy", "phase", TraitForm::list, phases, true, "When it works, in one phase or several"},
    {"strategy", "conflicts", TraitForm::patterns, {}, false, "Strategies that it does not go with"},
    {"strategy", "splits", TraitForm::list, batch_model_sequence, false,
     "batch: it splits the batch over its axis, so batch.global is counted for that many ranks; model: it "
     "splits "
     "the model over its axis, which prun offers where a plan does not fit; sequence: it splits sequences "
     "over its axis from beginning to end"},
    {"strategy",
     "over_batch",
     TraitForm::settings,
     {},
     false,
     "Settings of its options that are for ranks with different sequences: its option axis names one axis "
     "then, over which another strategy splits the batch, and none splits sequences"},
    {"strategy",
     "untrained",
     TraitForm::settings,
     {},
     false,
     "Settings of its options that programs take which evaluate or make text, whatever the recipe says"},
    {"strategy",
     "frees",
     TraitForm::settings,
     {},
     false,
     "Settings of its options with which ranks need less memory, each more than those before it"},
    {"strategy",
     "timed",
     TraitForm::names,
     {},
     false,
     "Its options that are choices whose `auto` prun settles: what a step is predicted to take least time "
     "with"},
    {"strategy",
     "bench",
     TraitForm::benches,
     {},
     false,
     "What `prun bench` tries of it, the first to compare the others with: settings of its options each, "
     "with "
     "a name in front where they are not known by the first one's value"},
    {"strategy", "only", TraitForm::choice, only_training, false,
     "training: it is left out of programs that evaluate or make text, where it has nothing to do"},
    {"strategy", "tune", TraitForm::choice, exactness, false,
     "What comes of adding it to a recipe that leaves it out: exact: the same numbers, up to the order of "
     "sums, so prun tune adds it where that helps; rounds: numbers are rounded otherwise, and prun tune adds "
     "it where that is allowed; changes: other mathematics, and it never does. Without it, it never does "
     "either"},
    {"strategy", "axis", TraitForm::choice, axis_kinds, false,
     "What its option axis names: own: an axis that it brings, over which it splits what `splits` says; "
     "batch: one or all of those that the batch is split over"},
    {"strategy",
     "varies",
     TraitForm::variations,
     {},
     false,
     "Options that prun tune may set where a recipe does not: the numbers of a step stay the same, up to the "
     "order of sums"},
    {"strategy",
     "rounds",
     TraitForm::variations,
     {},
     false,
     "The same of options with which numbers are rounded otherwise: only where that is allowed"},
    {"strategy",
     "changes",
     TraitForm::names,
     {},
     false,
     "Options with which it computes something else: prun tune leaves them alone, and says so"},
    {"optimizer", "elementwise", TraitForm::choice, yes_no, false,
     "It treats every element alike, so its state can be kept in parts"},
    {"optimizer", "whole", TraitForm::choice, tensors_matrices, false,
     "It updates whole tensors, which come together for that where ranks keep parts of them; matrices: what "
     "models "
     "say are made of matrices, and nothing else"},
    {"optimizer", "sums", TraitForm::choice, only_update, false,
     "update: ranks sum what its update makes of gradients by an op with the attribute `summands`, and not "
     "gradients, where precision.reduce is 1bit"},
    {"optimizer", "begins", TraitForm::choice, only_resumed, false,
     "resumed: its state is what another optimizer has made, so that a run goes on with it from a "
     "checkpoint, "
     "and does not begin with it"},
    {"observer", "log", TraitForm::choice, only_yes, false,
     "yes: it writes the log that prun's commands read, so every run has it that does not turn run.log off"},
    {"device",
     "driver",
     TraitForm::library,
     {},
     false,
     "Library of the system that it needs; without it, `auto` does not stand for this device"},
    {"device",
     "comm",
     TraitForm::name,
     {},
     false,
     "Comm plugin that goes with it; without it, `auto` does not stand for this device"},
    {"device",
     "memory",
     TraitForm::option,
     {},
     false,
     "Option of its section by which one says how much memory the machine has; refusals name it"},
    {"device",
     "shared",
     TraitForm::option,
     {},
     false,
     "Flag of its section with which several ranks may have one unit: the comm plugin that goes with it is "
     "not "
     "for those"},
    {"device",
     "plan",
     TraitForm::option,
     {},
     false,
     "Option of its section by which one says how much memory plans count on, as for another machine"},
    {"device",
     "plan_units",
     TraitForm::option,
     {},
     false,
     "Option of its section by which one says how many units a host of that machine has"},
    {"device",
     "plan_threads",
     TraitForm::option,
     {},
     false,
     "Option of its section by which one says how many threads compute, as on another machine"},
    {"device",
     "plan_name",
     TraitForm::option,
     {},
     false,
     "Option of its section by which one says what that machine's device is called: rates of some come with "
     "prun"},
    {"device",
     "tier",
     TraitForm::option,
     {},
     false,
     "Option of its table by which a tier is told its folders: `prun bench io` measures it"},
    {"device",
     "rates",
     TraitForm::names,
     {},
     false,
     "Its options for the GB/s that each of a tier's folders is read and written at, by which steps are "
     "predicted: `prun bench io` prints them"},
    {"device",
     "transfers",
     TraitForm::names,
     {},
     false,
     "Its options for the KiB of a transfer of a tier, and for how many are under way at a time"},
    {"comm",
     "shared_folder",
     TraitForm::variable,
     {},
     false,
     "Variable of the environment that says where it makes files in shared memory: ranks get a folder that "
     "goes when they end"},
    {"comm",
     "log",
     TraitForm::variable,
     {},
     false,
     "Variable of the environment that names a file for what it has to say: NAME.log in the run's folder"},
    {"schedule", "backward", TraitForm::choice, whole_split, true,
     "Whether it says backward, or backward_input and backward_weight"},
    {"schedule", "delay", TraitForm::choice, one_stages, false,
     "1: steps train with weights that are one update old, and so the next one begins before this one ends: "
     "order() is asked for the microbatches of several steps in a row, and a step of it is cut out; stages: "
     "the same of steps of one microbatch, in each stage with weights as many updates old as stages come "
     "behind it"},
};

bool is_for(const TraitRule& rule, std::string_view kind) {
  return rule.kind == every_kind || rule.kind == kind;
}

std::vector<std::string> keys_of(std::string_view kind) {
  std::vector<std::string> keys;
  for (const TraitRule& rule : rules)
    if (is_for(rule, kind)) keys.emplace_back(rule.key);
  return keys;
}

const TraitRule* find_rule(std::string_view kind, std::string_view key) {
  const auto found = std::find_if(std::begin(rules), std::end(rules), [&](const TraitRule& rule) {
    return is_for(rule, kind) && rule.key == key;
  });
  return found == std::end(rules) ? nullptr : found;
}

std::string values_text(const TraitRule& rule) {
  const std::vector<std::string> values(rule.values.begin(), rule.values.end());
  return join(values, ", ");
}

bool is_value(const TraitRule& rule, std::string_view value) {
  return std::find(rule.values.begin(), rule.values.end(), value) != rule.values.end();
}

bool is_pattern(std::string_view text) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789-_*?";
  return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

bool is_name(std::string_view text) {
  return is_pattern(text) && text.find_first_of("*?") == std::string_view::npos;
}

// Says whether a text is a setting such as "stage:1".
bool is_setting(std::string_view text) {
  const std::size_t colon = text.find(':');
  return colon != std::string_view::npos && is_name(trim(text.substr(0, colon))) &&
         is_name(trim(text.substr(colon + 1)));
}

// Says whether a text is a name and settings, or settings alone: "none keep:device", "stage:1 way:late".
bool is_bench(std::string_view text) {
  bool first = true, any = false;
  for (const std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    const bool setting = is_setting(word);
    if (!setting && !(first && is_name(word))) return false;
    any = any || setting;
    first = false;
  }
  return any;
}

// Says whether a text is a variation: "sequence", "stage:1|2|3", "schedule:@schedule",
// "place:host|(device:75, host:25)".
bool is_variation(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (!is_name(trim(text.substr(0, colon)))) return false;
  if (colon == std::string_view::npos) return true;
  for (std::string_view value : split(text.substr(colon + 1), '|')) {
    value = trim(value);
    if (value.starts_with('(') && value.ends_with(')')) {
      for (const std::string_view item : split(value.substr(1, value.size() - 2), ','))
        if (!is_name(trim(item)) && !is_setting(trim(item))) return false;
      continue;
    }
    if (value.starts_with('@')) value.remove_prefix(1);
    if (!is_name(value)) return false;
  }
  return true;
}

bool is_variable(std::string_view text) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return !text.empty() && (text.front() < '0' || text.front() > '9') &&
         text.find_first_not_of(letters) == std::string_view::npos;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 6 && text.front() != '0' &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_library(std::string_view text) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_+.";
  return text.find(".so") != std::string_view::npos &&
         text.find_first_not_of(letters) == std::string_view::npos;
}

std::string value_problem(const TraitRule& rule, std::string_view value) {
  constexpr std::size_t longest = 4096, shown = 80;
  if (value.size() > longest)
    return detail::concat("its trait ", rule.key, " is ", in_quotes(value.substr(0, shown)), "... and has ",
                          value.size(), " bytes; at most ", longest, " are allowed");
  const std::string stated = detail::concat("its trait ", rule.key, " is ", in_quotes(value));
  if (rule.form == TraitForm::choice)
    return is_value(rule, value) ? "" : stated + "; it may be one of " + values_text(rule);
  if (rule.form == TraitForm::library)
    return is_library(value) ? "" : stated + "; it must be the name of a shared library, such as libm.so.6";
  if (rule.form == TraitForm::name) return is_name(value) ? "" : stated + "; it must be the name of a plugin";
  if (rule.form == TraitForm::number)
    return is_number(value) ? "" : stated + "; it must be a whole number from 1 to 999999";
  if (rule.form == TraitForm::option)
    return is_name(value) ? "" : stated + "; it must be the name of one of its options";
  if (rule.form == TraitForm::variable)
    return is_variable(value) ? "" : stated + "; it must be the name of a variable, such as MY_FOLDER";
  for (const std::string_view item : items_of_trait(value)) {
    if (rule.form == TraitForm::list && !is_value(rule, trim(item)))
      return stated + "; it may list " + values_text(rule);
    if (rule.form == TraitForm::names && !is_name(trim(item)))
      return stated + "; it may list names of small letters, digits, - and _";
    if (rule.form == TraitForm::settings && !is_setting(trim(item)))
      return stated + "; it may list settings of its options, such as stage:1";
    if (rule.form == TraitForm::benches && !is_bench(trim(item)))
      return stated + "; it may list settings of its options, such as stage:1 or all keep:host";
    if (rule.form == TraitForm::variations && !is_variation(trim(item)))
      return stated + "; it may list options, with the values that they may have, such as stage:1|2|3";
    if (rule.form == TraitForm::patterns && !is_pattern(trim(item)))
      return stated + "; it may list names of " + std::string(rule.kind) + " plugins, * and ? in them";
  }
  return "";
}

std::string unknown_trait(const PluginNote& note, const std::string& key) {
  const std::vector<std::string> known = keys_of(note.kind);
  const std::string near = did_you_mean(key, known);
  return "it states an unknown trait " + in_quotes(key) +
         (near.empty() ? "; there are " + join(known, ", ") : near);
}

}  // namespace

std::span<const TraitRule> trait_rules() { return rules; }

std::string traits_problem(const PluginNote& note) {
  for (const auto& [key, value] : note.traits) {
    const TraitRule* const rule = find_rule(note.kind, key);
    std::string problem = rule ? value_problem(*rule, value) : unknown_trait(note, key);
    if (!problem.empty()) return problem;
  }
  for (const TraitRule& rule : rules)
    if (rule.required && rule.kind == note.kind && trait_of(note, rule.key).empty())
      return detail::concat("it lacks the trait ", rule.key, ", which must be one of ", values_text(rule));
  return "";
}

std::string_view trait_of(const PluginNote& note, std::string_view key) {
  const auto found = note.traits.find(std::string(key));
  return found == note.traits.end() ? std::string_view() : std::string_view(found->second);
}

std::vector<std::string_view> items_of_trait(std::string_view text) {
  std::vector<std::string_view> items;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    depth += (text[at] == '(') - (text[at] == ')');
    if (text[at] != ',' || depth > 0) continue;
    items.push_back(trim(text.substr(begin, at - begin)));
    begin = at + 1;
  }
  items.push_back(trim(text.substr(begin)));
  return items;
}

bool trait_lists(const PluginNote& note, std::string_view key, std::string_view item) {
  const std::vector<std::string_view> items = split(trait_of(note, key), ',');
  return std::any_of(items.begin(), items.end(), [&](std::string_view one) { return trim(one) == item; });
}

}  // namespace prun
