// Reads the option tables of the core and of plugins.
#include "recipe/schema.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- schema

constexpr std::size_t max_text = 64 * 1024;
constexpr std::size_t max_line = 1024;
constexpr std::size_t max_options = 256;
constexpr std::size_t max_key = 64;
constexpr std::size_t max_key_parts = 4;

// Holds one line of the text while it is read; fail() names the place.
struct Line {
  std::string_view where;
  std::size_t number;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, where, ", options line ", number, ": ", parts...);
  }
};

using Columns = std::array<std::string_view, 5>;

Columns columns_of(std::string_view text, const Line& line) {
  Columns columns;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const bool last = i + 1 == columns.size();
    const std::size_t bar = last ? std::string_view::npos : text.find('|');
    if (!last && bar == std::string_view::npos)
      line.fail("expected 'key | type | default | range or choices | help', found ", i + 1, " columns");
    columns[i] = trim(text.substr(0, bar));
    if (!last) text.remove_prefix(bar + 1);
  }
  if (columns[4].empty()) line.fail("option ", in_quotes(columns[0]), " has no help; say what it means");
  return columns;
}

bool valid_key_part(std::string_view part) {
  if (part.empty() || part[0] < 'a' || part[0] > 'z') return false;
  return part.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

void check_key(std::string_view key, const Line& line) {
  if (key == "*") return;
  const std::vector<std::string_view> parts = split(key, '.');
  const bool good = key.size() <= max_key && parts.size() <= max_key_parts &&
                    std::all_of(parts.begin(), parts.end(), valid_key_part);
  if (!good)
    line.fail("key ", in_quotes(key),
              " is not made of lower-case letters, digits and '_', or is longer than ", max_key,
              " letters or ", max_key_parts, " parts");
}

OptionType type_of(std::string_view name, const Line& line) {
  const std::optional<OptionType> type = option_type(name);
  if (!type)
    line.fail("type ", in_quotes(name),
              " is none of int, float, bool, string, choice, size, ints, floats, strings, names");
  return *type;
}

std::optional<double> bound_of(OptionType element, std::string_view text, const Line& line) {
  if (text.empty()) return std::nullopt;
  const std::optional<Value> bound = parse_value(element, text);
  if (!bound) line.fail("bound ", in_quotes(text), " of the range is not an ", name_of(element));
  if (const auto* whole = std::get_if<std::int64_t>(&*bound)) return static_cast<double>(*whole);
  return std::get<double>(*bound);
}

void read_range(Option& option, std::string_view text, const Line& line) {
  if (text.empty()) return;
  const OptionType element = element_of(option.type);
  if (element != OptionType::integer && element != OptionType::real)
    line.fail("a ", name_of(option.type), " takes no range");
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos || trim(text) == "..")
    line.fail("range ", in_quotes(text), " is not of the form low..high, low.. or ..high");
  option.low = bound_of(element, trim(text.substr(0, dots)), line);
  option.high = bound_of(element, trim(text.substr(dots + 2)), line);
  if (option.low && option.high && *option.low > *option.high)
    line.fail("range ", in_quotes(text), " is empty");
  option.range = text;
}

void read_choices(Option& option, std::string_view text, const Line& line) {
  for (const std::string_view part : split(text, ',')) {
    const std::string choice(trim(part));
    if (choice.empty()) line.fail("choice ", in_quotes(option.key), " has an empty name among its choices");
    if (std::find(option.choices.begin(), option.choices.end(), choice) != option.choices.end())
      line.fail("choice ", in_quotes(option.key), " lists ", in_quotes(choice), " twice");
    option.choices.push_back(choice);
  }
}

template <class List>
bool all_in_range(const Option& option, const List& list) {
  return std::all_of(list.begin(), list.end(),
                     [&](auto number) { return option.in_range(static_cast<double>(number)); });
}

bool default_allowed(const Option& option) {
  const Value& value = option.default_value;
  if (const auto* whole = std::get_if<std::int64_t>(&value))
    return option.in_range(static_cast<double>(*whole));
  if (const auto* real = std::get_if<double>(&value)) return option.in_range(*real);
  if (const auto* wholes = std::get_if<std::vector<std::int64_t>>(&value))
    return all_in_range(option, *wholes);
  if (const auto* reals = std::get_if<std::vector<double>>(&value)) return all_in_range(option, *reals);
  const auto* text = std::get_if<std::string>(&value);
  if (!text) return true;
  if (option.type == OptionType::size) return text->empty() || parse_size(*text).has_value();
  if (option.type != OptionType::choice) return true;
  return std::find(option.choices.begin(), option.choices.end(), *text) != option.choices.end();
}

void read_default(Option& option, std::string_view text, const Line& line) {
  if (text == "required") option.presence = Presence::required;
  if (text == "none") option.presence = Presence::optional;
  if (option.presence != Presence::has_default) return;
  std::optional<Value> value = parse_value(option.type, text);
  if (!value)
    line.fail("default ", in_quotes(text), " of ", in_quotes(option.key), " is not of type ",
              name_of(option.type));
  option.default_value = std::move(*value);
  if (!default_allowed(option))
    line.fail("default ", in_quotes(text), " of ", in_quotes(option.key),
              " is not among the values it allows");
}

Option parse_option(std::string_view text, const Line& line) {
  const Columns columns = columns_of(text, line);
  check_key(columns[0], line);
  Option option;
  option.key = columns[0];
  option.type = type_of(columns[1], line);
  option.help = columns[4];
  if (option.type == OptionType::choice)
    read_choices(option, columns[3], line);
  else
    read_range(option, columns[3], line);
  read_default(option, columns[2], line);
  return option;
}

void check_line(std::string_view text, const Line& line) {
  if (text.size() > max_line) line.fail("longer than ", max_line, " bytes");
  const bool odd = std::any_of(text.begin(), text.end(),
                               [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  if (odd || !valid_utf8(text)) line.fail("not printable UTF-8");
}

void add_option(std::vector<Option>& options, Option option, const Line& line) {
  if (options.size() == max_options) line.fail("more than ", max_options, " options");
  for (const Option& other : options)
    if (keys_collide(other.key, option.key))
      line.fail("option ", in_quotes(option.key), " collides with option ", in_quotes(other.key),
                " above it");
  options.push_back(std::move(option));
}

}  // namespace

const Option* Schema::find(std::string_view key) const {
  const auto found =
      std::find_if(options_.begin(), options_.end(), [key](const Option& o) { return o.key == key; });
  return found == options_.end() ? nullptr : &*found;
}

bool keys_collide(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (a.size() == b.size() || b[a.size()] == '.');
}

Schema parse_schema(std::string_view text, std::string_view where) {
  const std::string place = printable(where, 120);
  if (text.size() > max_text)
    throw_error(ErrorCode::bad_input, place, ": the option table is longer than ", max_text, " bytes");
  std::vector<Option> options;
  Line line{place, 0};
  for (const std::string_view raw : split(text, '\n')) {
    ++line.number;
    const std::string_view content = trim(raw);
    if (content.empty() || content.starts_with('#')) continue;
    check_line(content, line);
    add_option(options, parse_option(content, line), line);
  }
  return Schema(std::move(options));
}

std::string describe_default(const Option& option) {
  switch (option.presence) {
    case Presence::required: return "required";
    case Presence::optional: return "optional";
    case Presence::has_default: break;
  }
  return "default " + to_toml(option.default_value);
}

std::string describe_range(const Option& option) {
  if (option.type == OptionType::choice) return "one of " + join(option.choices, ", ");
  return option.range;
}

namespace {

// ------------------------------------------------------------------- typed value
// Checks one written value against its declaration.

class Conversion {
 public:
  Conversion(const Option& option, std::string subject, Diagnostics& diagnostics)
      : option_(option), subject_(std::move(subject)), diagnostics_(diagnostics) {}

  std::optional<Value> run(const Node& node) {
    const std::size_t before = diagnostics_.size();
    const bool lone = option_.type == OptionType::names && node.kind != Node::Kind::list;
    std::optional<Value> value = is_list(option_.type) && !lone ? list(node) : scalar(node, option_.type);
    return diagnostics_.size() == before ? std::move(value) : std::nullopt;
  }

 private:
  std::optional<Value> list(const Node& node) {
    switch (option_.type) {
      case OptionType::integers: return list_of<std::int64_t>(node);
      case OptionType::reals: return list_of<double>(node);
      default: return list_of<std::string>(node);
    }
  }

  template <class Element>
  std::optional<Value> list_of(const Node& node) {
    if (node.kind == Node::Kind::bare) return bare_list<Element>(node);
    if (node.kind != Node::Kind::list) return wrong_type(node, option_.type);
    std::vector<Element> out;
    const std::string whole = subject_;
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      subject_ = "element " + std::to_string(i + 1) + " of " + whole;
      const std::optional<Value> one = scalar(node.items[i], element_of(option_.type));
      if (one) out.push_back(std::get<Element>(*one));
    }
    return Value(std::move(out));
  }

  template <class Element>
  std::optional<Value> bare_list(const Node& node) {
    std::optional<Value> value = parse_value(option_.type, node.text);
    if (!value) return wrong_type(node, option_.type);
    if constexpr (!std::is_same_v<Element, std::string>)
      for (const Element element : std::get<std::vector<Element>>(*value))
        check_range(node, static_cast<double>(element), to_toml(Value(element)));
    return value;
  }

  std::optional<Value> scalar(const Node& node, OptionType type) {
    std::optional<Value> value =
        node.kind == Node::Kind::bare ? parse_value(type, node.text) : typed(node, type);
    if (!value) return wrong_type(node, type);
    if (const auto* whole = std::get_if<std::int64_t>(&*value))
      check_range(node, static_cast<double>(*whole), std::to_string(*whole));
    if (const auto* real = std::get_if<double>(&*value)) check_real(node, *real);
    if (const auto* text = std::get_if<std::string>(&*value)) check_text(node, *text, type);
    return value;
  }

  static std::optional<Value> typed(const Node& node, OptionType type) {
    const bool text = type == OptionType::string || type == OptionType::choice || type == OptionType::size ||
                      type == OptionType::names;
    if (type == OptionType::integer && node.kind == Node::Kind::integer) return Value(node.integer);
    if (type == OptionType::real && node.kind == Node::Kind::real) return Value(node.real);
    if (type == OptionType::real && node.kind == Node::Kind::integer)
      return Value(static_cast<double>(node.integer));
    if (type == OptionType::boolean && node.kind == Node::Kind::boolean) return Value(node.boolean);
    if (text && node.kind == Node::Kind::string) return Value(node.text);
    return std::nullopt;
  }

  void check_real(const Node& node, double real) {
    if (!std::isfinite(real))
      report(node, subject_ + " is not a finite number");
    else
      check_range(node, real, to_toml(Value(real)));
  }

  void check_range(const Node& node, double number, const std::string& shown) {
    if (!option_.in_range(number))
      report(node, subject_ + " is " + shown + ", outside its range " + option_.range);
  }

  void check_text(const Node& node, const std::string& text, OptionType type) {
    if (type == OptionType::size && !text.empty() && !parse_size(text))
      report(node, subject_ + " is " + in_quotes(text) + ", not a size such as \"80GiB\"");
    if (type != OptionType::choice) return;
    const auto& choices = option_.choices;
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return;
    const std::string near = nearest(text, choices);
    report(node, subject_ + " is " + in_quotes(text) + ", not one of " + join(choices, ", ") +
                     (near.empty() ? "" : "; did you mean '" + near + "'?"));
  }

  std::optional<Value> wrong_type(const Node& node, OptionType type) {
    report(node, "wrong type for " + subject_ + ": expected " + std::string(describe(type)) + ", got " +
                     describe(node) + meant_by(node, type));
    return std::nullopt;
  }

  // Returns what was probably meant: the same without quotes, with them, or as a whole number.
  static std::string meant_by(const Node& node, OptionType type) {
    const bool text = type == OptionType::string || type == OptionType::choice || type == OptionType::size;
    if (node.kind == Node::Kind::string && !text && parse_value(type, node.text))
      return "; leave out the quotes: " + printable(trim(node.text), 60);
    if (node.kind == Node::Kind::integer && text)
      return "; put it in quotes: " + to_toml(Value(std::to_string(node.integer)));
    const bool whole = node.kind == Node::Kind::real && type == OptionType::integer &&
                       std::abs(node.real) < 1e15 && std::trunc(node.real) == node.real;
    return whole ? "; write it out: " + std::to_string(static_cast<std::int64_t>(node.real)) : "";
  }

  void report(const Node& node, std::string message) { diagnostics_.add(node.at, std::move(message)); }

  const Option& option_;
  std::string subject_;
  Diagnostics& diagnostics_;
};

}  // namespace

std::optional<Value> convert(const Node& node, const Option& option, std::string_view subject,
                             Diagnostics& diagnostics) {
  return Conversion(option, std::string(subject), diagnostics).run(node);
}

namespace {

// ------------------------------------------------------------------- core schema
// Lists what the core itself reads from a recipe.

enum class Form : std::uint8_t { table, list, list_of_at_least_one };

struct Declaration {
  std::string_view name;
  Form form;
  std::string_view plugin_kind;
  std::string_view value_kind;
  std::string_view help;
  std::string_view options;
  std::string_view table_kind = "";
};

constexpr std::array<Declaration, 20> declarations = {{
    {"run", Form::table, "", "", "The run: its length, its output, what to do on failures.", R"(
      name         | string | required |  | Name of the run
      steps        | int    | required | 1..1000000000000 | Optimizer steps to train for
      epochs       | float  | 0        | 0..1000000 | Stop after this many passes over the samples of [data] if that takes fewer steps than run.steps; 0: run.steps alone sets the length
      seed         | int    | 1        | 0.. | Seed of all random numbers, such as initial weights, sample order and dropout
      layout       | choice | recipe   | recipe,auto | recipe: use the mesh, strategies and microbatch given here; auto: search for the missing ones before ranks start, as prun tune does; a resumed run keeps its layout
      ranks        | int    | 0        | 0..1048576 | With layout = "auto": number of ranks to find a layout for; 0: those of [mesh] or, without one, one per unit of the device, such as a GPU; another launcher's number of ranks counts instead
      out          | string |          |  | Folder for logs and checkpoints; empty: runs/<name>
      save_every   | int    | 0        | 0.. | Steps between checkpoints; 0: no checkpoints by step count
      save_minutes | float  | 0        | 0.. | Minutes between checkpoints, in addition to save_every; 0: no checkpoints by time
      save_at_end  | bool   | true     |  | Save a checkpoint after the last step; free disk space for it is checked before the first step
      save_memory  | string |          |  | Host memory of each rank that buffers a checkpoint on its way to disk, such as 8GiB, at least 16MiB; all: copy everything before training goes on; empty: most of what the plan leaves free, at least 16MiB
      save_rate    | size   | 1GiB     |  | Disk write bandwidth of run.out in bytes per second, shared by all ranks of a host; used only to predict how long a checkpoint takes
      keep         | int    | 0        | 0.. | Number of newest checkpoints to keep; 0: keep all
      keep_every   | int    | 0        | 0.. | Also keep checkpoints whose step is a multiple of this; 0: keep no others
      on_nonfinite | choice | none     | stop,skip | On a non-finite loss or gradient: stop: end the run; skip: skip the update; default: skip if the loss is scaled, else stop
      hang_limit   | int    | 600      | 0..1000000 | Timeout in seconds for ranks that wait in a collective or for a checkpoint, and for a step without progress on any rank; 0: no timeout
      measure_comm | int    | 10       | 0.. | Steps between measurements of exposed communication, the time that compute waits for collectives; 0: never
      check_replicas_every | int | 100 | 0.. | Steps between checks that replicated state is identical on all ranks that hold it, also done before each checkpoint; 0: never
      bucket_bytes | size   |          |  | Bucket size: layers share one collective for gradients or parameters up to this many bytes; 0B: one collective per layer; empty: 32MiB, or a quarter of all bytes if that is less
      keep_gradients | bool | true     |  | Keep offloaded gradients until the step ends; false: free each layer's right after its update, which saves memory but makes backward wait for updates. false requires updates that do not wait for the gradient norm (no optimizer.clip, loss scaling or on_nonfinite = "skip"); results are identical
      restarts     | int    | 0        | 0..1000 | Consecutive times that all ranks are restarted from the last checkpoint after a rank was lost; each new checkpoint resets the count
      loss_by_set  | bool   | false    |  | Report the loss of each data set separately after each step
      loss_by_role | bool   | false    |  | Report the loss of each chat role separately after each step, over its tokens that are trained on
      log          | bool   | true     |  | Write log.jsonl to the run's folder, for prun report, runs, watch and diff, unless an [[observer]] of the recipe writes it
      poison       | bool   | false    |  | Debugging: fill memory with NaN once its value is dead, and check guard bytes around every value, to detect early reads and writes out of bounds
      resume       | string |          |  | Checkpoint to resume from; empty: start from scratch
      allow_changed | strings | []     |  | Keys that may differ from the checkpoint although that changes its meaning: on resume, keys of samples (data.*, model.seq, run.seed); with model.init, keys of weights (model.*); strategy.N.plugin: start the parameters that this strategy adds from the seed if the checkpoint has none
      fresh        | bool   | false    |  | Rename an earlier run in this folder, by adding a number, instead of refusing to start; a run that is resumed stays
    )"},
    {"model", Form::table, "model", "", "The model to train.", R"(
      plugin | string | required |  | Model plugin
      seq    | int    | required | 1..16777216 | Sequence length in tokens
      config | string |          |  | A Hugging Face config.json, or a folder with one, that sets the plugin and its options; options given here override it
      init   | string |          |  | Initial weights: a Hugging Face folder (sets the plugin and its options as well), a checkpoint or a run's folder; empty: random, from run.seed
      adapter | string |        |  | A PEFT folder with adapter_model.safetensors to initialize the adapters that a strategy adds
    )"},
    {"data", Form::table, "data", "", "The training data.", R"(
      plugin  | string | required |  | Data plugin
      shuffle | bool   | true     |  | Visit the samples in a random order, fixed by run.seed
      weight  | float  | 1        | 1e-9..1e9 | Sampling weight of this set if there is a [[data.blend]]: its share of the samples is weight / sum of all weights
      validation | float | 0      | 0..0.5 | Fraction of each set, its last samples, held out from training for validation
      mask_documents | bool | false  |  | Mask attention at document boundaries, and predict no token from the document before (requires end_of_text); false: attend across the documents of a sample
      end_of_text | int | none   | 0..2147483647 | Token that ends a document; required by mask_documents
      mask    | float  | 0        | 0..1 | Masked language modeling: fraction of tokens to predict in place; 80 % of them become mask_token, 10 % a random token, 10 % stay; 0: off
      mask_token | int | none     | 0..2147483647 | Token that replaces a masked one
      spans   | float  | 0        | 0..0.9 | Span corruption (T5): fraction of a text to cut out in spans, which the decoder predicts; 0: off
      span_length | float | 3     | 1..1000000 | Mean length of a span in tokens
      span_token | int | none     | 0..2147483647 | Sentinel token of the first span; later spans use the tokens below it
      span_end | int   | 1        | 0..2147483647 | Token that ends the encoder's text and the decoder's output
      span_start | int | 0        | 0..2147483647 | Token that starts the decoder's input
      mask_never | ints | []      | 0..2147483647 | Tokens that are never masked and never used as a random replacement, such as separators
    )"},
    {"data.blend", Form::list, "data", "", "Further sets, mixed with [data] sample by sample.", R"(
      plugin | string | required |  | Data plugin
      weight | float  | 1        | 1e-9..1e9 | Sampling weight of this set: its share of the samples is weight / sum of all weights
    )"},
    {"validation", Form::list, "data", "", "Sets that are used for validation only.", R"(
      plugin | string | required |  | Data plugin
      weight | float  | 1        | 1e-9..1e9 | Sampling weight of this set: its share of the samples is weight / sum of all weights
    )"},
    {"batch", Form::table, "", "", "Batch size, and how it is divided into microbatches.", R"(
      global | int | required | 1..1000000000 | Global batch size: sequences per step, over all ranks
      micro  | int | 0 | 0..1000000 | Microbatch size: sequences that a rank processes at a time; gradient accumulation follows from it; 0: chosen by prun tune or run.layout = "auto"
      order  | choice | depth_first | depth_first,breadth_first,auto | Order of microbatches: depth_first: each passes all layers before the next; breadth_first: all pass a layer before the next layer; auto: whichever is predicted to be faster
      interleave | int | 1 | 1..64 | Microbatches processed concurrently, so that one computes while another communicates; must divide the number of microbatches
      pad    | bool | false    |  | If global does not divide evenly, fill the last microbatch with sequences that do not count
      ramp.start     | int | 0 | 0..1000000000 | Batch size ramp-up: sequences per step at the start of the run; 0: no ramp-up, unless ramp.sizes is set
      ramp.increment | int | 0 | 0..1000000000 | Sequences added at each increase; increases are spread evenly over ramp.samples
      ramp.samples   | int | 0 | 0..1000000000000000 | Samples to train on until the batch size reaches global
      ramp.sizes | ints | [] | 1..1000000000 | Custom ramp-up: global batch size of each phase before the last, which has batch.global
      ramp.until | ints | [] | 1..1000000000 | Custom ramp-up: last step of each phase in ramp.sizes
    )"},
    {"eval", Form::table, "", "", "Validation loss during training, on data.validation or [[validation]].",
     R"(
      every   | int | 0 | 0.. | Steps between evaluations, with another one after the last step; 0: never
      batches | int | 8 | 1..1000000000 | Global batches per evaluation, from the first validation sample on
      by_set  | bool | false |        | Also evaluate each set separately, over as many batches of that set
      keep_best | bool | false |       | Save a checkpoint when the validation loss is the lowest so far, and keep it; `best` in the run's folder links to it
      patience | int | 0 | 0..1000000000 | Early stopping: end the run after this many evaluations in a row without a lower loss; 0: off
    )"},
    {"precision", Form::table, "", "", "Number formats.", R"(
      compute  | choice | fp32  | fp64,fp32,bf16,fp16 | Format of parameters and activations; fp16 uses loss scaling, see [loss_scale]
      state    | choice | fp32  | fp64,fp32,bf16 | Default format of master, moments and gradient
      master   | choice | state | state,fp64,fp32,bf16,split | Format of master weights; split: fp32, stored as the bf16 parameter and the lower 16 bits; bf16 rounds stochastically
      moments  | choice | state | state,fp64,fp32,bf16,8bit | Format of the optimizer's moments; bf16 and 8bit round stochastically; 8bit: quantized in blocks of 128, but fp32 for tensors with fewer than 4096 elements or not divisible into blocks
      gradient | choice | state | state,fp64,fp32,bf16 | Format in which gradients are accumulated
      reduce   | choice | state | state,fp64,fp32,bf16,int8,int4,1bit | Format in which gradients are reduced over ranks; state: as accumulated; int8, int4 (require strategy zero): quantized in blocks of 128 with a scale each, and summed by the receiver; 1bit (requires an optimizer that reduces its momentum): signs and scales, with error feedback; tensors with fewer than 4096 elements or not divisible into blocks are sent as with state
      gather   | choice | compute | compute,int8,fp8 | Format in which sharded parameters are all-gathered (zero, stage = 3); compute: as they are; int8: quantized in blocks as with reduce, and all ranks compute with the result; fp8: the same in e4m3 with power-of-two scales; master weights stay exact
    )"},
    {"loss_scale", Form::table, "", "",
     "Loss scaling for fp16: the loss is multiplied before backward and updates divide by the same, so that "
     "small gradients do not underflow.",
     R"(
      rule       | choice | none | deepspeed,megatron,static | Dynamic loss scaling: on a non-finite gradient, skip the step and halve the scale; after a window without one, double it. deepspeed: end the run instead of going below least; megatron: go on at least; static: keep the scale; default: deepspeed if precision.compute = "fp16", else no scaling
      initial    | float  | none | 1e-30..1e30 | Initial scale, a power of two; default: 65536 for deepspeed, 4294967296 for megatron; static needs it
      window     | int    | 1000 | 1..1000000000 | Consecutive finite steps before the scale doubles; deepspeed counts from the second one on
      hysteresis | int    | 2    | 1..1000000000 | The scale falls at this many non-finite steps, and at each one after that until the count is reset; 1: at the first
      least      | float  | 1    | 1e-30..1e30 | Minimum scale, a power of two
      consecutive_hysteresis | bool | false | | Reset the hysteresis at each finite step instead of only when the scale rises
    )"},
    {"optimizer", Form::table, "optimizer", "", "The optimizer and its learning rate.", R"(
      plugin          | string | required |  | Optimizer plugin
      lr              | float  | required | 0..1000000 | Peak learning rate
      clip            | float  | 0        | 0.. | Clip the global gradient norm to this; 0: no clipping
      delays          | ints   | []       | 0.. | On one rank: how many updates old the weights of each layer are, embedding and head included, to imitate a pipeline schedule with delay=stages; prun verify sets it for the rank that it compares with
      schedule.kind   | choice | constant | constant,linear,cosine,wsd,inverse-sqrt,polynomial,steps,points | Learning rate schedule after warmup; wsd: constant until schedule.decay steps before the end; steps, points: custom, set by schedule.at and schedule.factors
      schedule.warmup | int    | 0        | 0.. | Warmup steps, in which the learning rate rises from 0
      schedule.final  | float  | 0        | 0..1 | Final learning rate, as a fraction of lr
      schedule.steps  | int    | 0        | 0.. | Step at which the schedule ends; 0: run.steps
      schedule.decay  | int    | none     | 1.. | With wsd: number of steps of the decay at the end
      schedule.shape  | choice | linear   | linear,cosine,sqrt | With wsd: shape of the decay; sqrt: 1 - sqrt(progress)
      schedule.power  | float  | 2        | 0.1..10 | With kind = "polynomial": exponent of the fraction of steps that remain; 1: linear
      schedule.at      | ints   | []      | 0.. | With steps or points: step numbers, ascending
      schedule.factors | floats | []      | 0..1000 | With steps or points: factor on lr for each number in schedule.at; steps: used after that step; points: reached at it, linear in between
    )"},
    {"optimizer.group", Form::list, "optimizer", "",
     "Parameters with different settings; the first match applies.", R"(
      match        | string | required |  | Glob pattern of parameter names, such as *.bias
      of           | choice | all      | all,matrices,others | Which of these parameters: matrices: those that the model declares as matrices; others: embedding tables, norm gains, biases
      plugin       | string | none     |  | Optimizer plugin for these parameters; default: that of [optimizer]
      lr_scale     | float  | 1        | 0.. | Factor on the learning rate
      weight_decay | float  | none     | 0.. | Weight decay; default: the optimizer's
      frozen       | bool   | false    |  | Do not train these parameters
    )"},
    {"device", Form::table, "device", "", "The device that computes.", R"(
      plugin | string | auto |  | Device plugin; auto: one for GPUs if this machine can train the recipe on them, else the host's
      memory | size   |     |  | Memory limit for a rank's plan, such as 80GiB; empty: the device's memory minus what the process itself needs
    )"},
    {"mesh", Form::table, "", "",
     "Named axes of the device mesh; the product of their sizes is the number of ranks.", R"(
      * | int | none | 1..1048576 | Size of this axis
    )"},
    {"strategy", Form::list, "strategy", "",
     "How training is distributed over the mesh, one table per strategy.", R"(
      plugin | string | required |  | Strategy plugin
    )"},
    {"observer", Form::list_of_at_least_one, "observer", "",
     "Plugins that receive steps, metrics and events.", R"(
      plugin | string | console |  | Observer plugin
    )"},
    {"comm", Form::table, "", "comm", "Communication backend of each mesh axis.", R"(
      default | string | auto |  | Comm plugin of axes that are not listed here; auto: the one that goes with the device
      *       | string | none |  | Comm plugin of this axis, or auto
    )",
     "comm"},
    {"plugins", Form::table, "", "", "Where plugins are found.", R"(
      path | strings | [] |  | Folders to search for plugins, after --plugin-path and PRUN_PLUGIN_PATH, before the installed ones
      ops  | strings | [] |  | Op plugins to load
    )"},
    {"schedule", Form::table, "", "", "Options of pipeline schedule plugins.", "", "schedule"},
    {"op", Form::table, "", "", "Options of op plugins.", "", "op"},
    {"tier", Form::table, "", "",
     "Options of further devices that strategies use, such as a tier for offload.", "", "device"},
}};

SectionRule rule_of(const Declaration& declared) {
  return {std::string(declared.name),
          declared.form != Form::table,
          std::string(declared.plugin_kind),
          std::string(declared.value_kind),
          declared.form == Form::list_of_at_least_one,
          std::string(declared.help),
          parse_schema(declared.options, declared.name),
          std::string(declared.table_kind)};
}

std::vector<SectionRule> build_rules() {
  std::vector<SectionRule> rules;
  rules.reserve(std::size(declarations));
  for (const Declaration& declared : declarations) rules.push_back(rule_of(declared));
  return rules;
}

}  // namespace

std::span<const SectionRule> core_sections() {
  static const std::vector<SectionRule> rules = build_rules();
  return rules;
}

}  // namespace prun::recipe
