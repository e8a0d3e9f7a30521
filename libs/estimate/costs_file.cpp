#include "estimate/costs_file.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- costs file

namespace fs = std::filesystem;

constexpr std::int64_t version = 3;
constexpr JsonLimits limits{std::size_t{64} << 20, 2'000'000, 8};
constexpr double fastest = 1e18;  // FLOPs or bytes a second
constexpr double longest = 1e9;   // seconds: more is a typing error
constexpr DType types[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                           DType::i32, DType::i64, DType::u8,   DType::u16};

// Reads one JSON object. Unknown, repeated and missing members are errors.
class Fields {
 public:
  Fields(const JsonValue& value, std::string place) : place_(std::move(place)) {
    if (!value.is_object()) fail("must be an object");
    object_ = &value.as_object();
  }

  const JsonValue& take(const char* name) {
    const JsonValue* value = object_->find(name);
    if (!value) fail("has no '", name, "'");
    taken_.emplace_back(name);
    return *value;
  }
  std::string text(const char* name) {
    const JsonValue& value = take(name);
    if (!value.is_string() || value.as_string().empty()) fail("'", name, "' must be a text");
    return value.as_string();
  }
  double seconds(const char* name) { return number(take(name), name); }
  std::int64_t count(const char* name, std::int64_t least) {
    const JsonValue& value = take(name);
    if (value.kind() != JsonKind::integer || value.as_int64() < least)
      fail("'", name, "' must be a whole number from ", least, " on");
    return value.as_int64();
  }
  const JsonArray& list(const char* name) {
    const JsonValue& value = take(name);
    if (!value.is_array()) fail("'", name, "' must be a list");
    return value.as_array();
  }
  bool has(const char* name) const { return object_->find(name) != nullptr; }
  // Reads a rate a second, whose bound is higher than that of seconds.
  double rate(const char* name) {
    const JsonValue& value = take(name);
    const bool numeric = value.is_integer() || value.kind() == JsonKind::real;
    if (!numeric || !(value.as_double() > 0) || value.as_double() > fastest)
      fail("'", name, "' must be a number above 0, up to ", fastest);
    return value.as_double();
  }
  std::optional<double> number_if_there(const char* name) {
    if (!object_->find(name)) return {};
    return number(take(name), name);
  }
  bool flag_if_there(const char* name) {
    if (!object_->find(name)) return false;
    const JsonValue& value = take(name);
    if (value.kind() != JsonKind::boolean) fail("'", name, "' must be true or false");
    return value.as_bool();
  }
  double number(const JsonValue& value, const char* name) const {
    const bool numeric = value.is_integer() || value.kind() == JsonKind::real;
    if (!numeric || !(value.as_double() >= 0) || value.as_double() > longest)
      fail("'", name, "' must be a number from 0 to ", longest);
    return value.as_double();
  }
  void finish() const {
    for (const JsonMember& member : object_->members())
      if (std::find(taken_.begin(), taken_.end(), member.name) == taken_.end())
        fail("has ", in_quotes(member.name), ", which means nothing here");
  }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, place_, " ", parts...,
                "; delete the file and measure again with prun bench kernels and prun bench comm");
  }

 private:
  std::string place_;
  const JsonObject* object_ = nullptr;
  std::vector<std::string> taken_;
};

class TableReader {
 public:
  TableReader(const JsonValue& root, const std::string& source)
      : source_(source), root_(root, source + ": the cost table") {}

  CostTable read() {
    if (const std::int64_t found = root_.count("prun_costs", 0); found != version)
      root_.fail("is of version ", found, ", this prun writes version ", version);
    read_machine();
    table_.host_gb_per_second = root_.number_if_there("host_gb_per_second");
    if (table_.host_gb_per_second == 0.0) root_.fail("'host_gb_per_second' must be more than 0");
    if (root_.has("rates")) each("rates", [&](Fields& f) { table_.rates.push_back(rates(f)); });
    each("overheads", [&](Fields& f) {
      insert(f, table_.overheads, f.text("device"), Overheads{f.seconds("call"), f.seconds("handoff")});
    });
    each("kernels", [&](Fields& f) {
      KernelKey key{f.text("op"), type(f), f.text("device")};
      insert(f, table_.kernels, std::move(key),
             KernelFit{f.seconds("fixed"), f.seconds("per_flop"), f.seconds("per_byte")});
    });
    each("exact", [&](Fields& f) {
      insert(f, table_.exact, ExactKey{f.text("device"), f.text("shape")}, f.seconds("seconds"));
    });
    each("exchanges", [&](Fields& f) {
      ExchangeKey key{kind(f), f.count("members", 2), f.text("device"), f.flag_if_there("between_hosts")};
      insert(f, table_.exchanges, std::move(key), curve(f));
    });
    each("exact_exchanges", [&](Fields& f) {
      ExactExchange exchange{f.text("device"), f.text("queue"), kind(f), f.count("members", 2),
                             f.count("bytes", 0)};
      insert(f, table_.exact_exchanges, std::move(exchange),
             ExchangeTime{f.seconds("seconds"), f.seconds("lateness")});
    });
    root_.finish();
    return std::move(table_);
  }

 private:
  void read_machine() {
    Fields f(root_.take("machine"), source_ + ": machine");
    table_.machine = {f.text("cpu"), f.count("cores", 1), f.text("isa")};
    f.finish();
  }

  template <class Body>
  void each(const char* name, Body&& body) {
    const JsonArray& list = root_.list(name);
    for (std::size_t i = 0; i < list.size(); ++i) {
      Fields fields(list[i], detail::concat(source_, ": ", name, "[", i, "]"));
      body(fields);
      fields.finish();
    }
  }

  template <class Map, class Key, class Item>
  static void insert(const Fields& fields, Map& map, Key key, Item item) {
    if (!map.emplace(std::move(key), std::move(item)).second) fields.fail("repeats one before it");
  }

  static DType type(Fields& fields) {
    const std::string name = fields.text("type");
    for (DType t : types)
      if (name == name_of(t)) return t;
    fields.fail("names a type that there is not: ", in_quotes(name));
  }

  // Reads rates. FLOPs a second are members named by type: "fp32", "bf16".
  static DeviceRates rates(Fields& fields) {
    DeviceRates rates;
    rates.device = fields.text("device");
    if (fields.has("short")) rates.short_name = fields.text("short");
    rates.source = fields.text("source");
    for (DType t : types)
      if (fields.has(name_of(t))) rates.flops_per_second[t] = fields.rate(name_of(t));
    if (rates.flops_per_second.empty()) fields.fail("has FLOPs a second of no type");
    if (fields.has("ops")) read_shares(fields.list("ops"), rates);
    rates.bytes_per_second = fields.rate("bytes_per_second");
    rates.fixed = fields.seconds("fixed");
    const auto rate_if_there = [&](const char* name) {
      return fields.has(name) ? std::optional(fields.rate(name)) : std::nullopt;
    };
    rates.fp8_flops_per_second = rate_if_there("fp8");
    rates.peak_flops = rate_if_there("peak_flops");
    rates.host_bytes_per_second = rate_if_there("host_bytes_per_second");
    rates.host_memory_bytes_per_second = rate_if_there("host_memory_bytes_per_second");
    rates.drive_bytes_per_second = rate_if_there("drive_bytes_per_second");
    rates.beside_exchanges = rate_if_there("beside_exchanges");
    if (rates.beside_exchanges.value_or(1) > 1) fields.fail("'beside_exchanges' must be at most 1");
    if (fields.has("within")) rates.within = {fields.rate("within"), fields.seconds("within_latency")};
    if (fields.has("between")) rates.between = {fields.rate("between"), fields.seconds("between_latency")};
    rates.least = fields.rate("least");
    rates.most = fields.rate("most");
    if (rates.least > 1 || rates.most < 1) fields.fail("'least' is above 1, or 'most' below it");
    return rates;
  }

  static void read_shares(const JsonArray& list, DeviceRates& rates) {
    for (const JsonValue& one : list) {
      Fields fields(one, "an op of the rates of " + rates.device);
      std::string op = fields.text("op");
      const double share = fields.rate("share");
      if (share > 1) fields.fail("'share' must be at most 1");
      insert(fields, rates.share_of, std::move(op), share);
      fields.finish();
    }
  }

  static CommKind kind(Fields& fields) {
    const std::string name = fields.text("kind");
    for (int k = 0; k < comm_kinds; ++k)
      if (name == name_of(static_cast<CommKind>(k))) return static_cast<CommKind>(k);
    fields.fail("names an exchange that there is not: ", in_quotes(name));
  }

  static ExchangeCurve curve(Fields& fields) {
    ExchangeCurve curve;
    for (const JsonValue& pair : fields.list("points")) {
      if (!pair.is_array() || pair.as_array().size() != 2 || pair.as_array()[0].kind() != JsonKind::integer)
        fields.fail("'points' must be pairs of bytes and seconds");
      const std::int64_t bytes = pair.as_array()[0].as_int64();
      if (bytes < 0 || (!curve.points.empty() && bytes <= curve.points.back().bytes))
        fields.fail("'points' must have growing sizes");
      curve.points.push_back({bytes, fields.number(pair.as_array()[1], "points")});
    }
    if (curve.points.empty()) fields.fail("'points' is empty");
    return curve;
  }

  std::string source_;
  Fields root_;
  CostTable table_;
};

void make_parent(const fs::path& file) {
  std::error_code error;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), error);
  if (error)
    throw_error(ErrorCode::storage, "cannot create the folder of the cost table ", file.string(), ": ",
                error.message(), "; name another place with --out");
}

}  // namespace

fs::path default_costs_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && fs::path(cache).is_absolute()) return fs::path(cache) / "prun" / "costs.json";
  const char* home = std::getenv("HOME");
  return fs::path(home && *home ? home : "/") / ".cache" / "prun" / "costs.json";
}

CostTable parse_costs(std::string_view text, const std::string& source) {
  return TableReader(parse_json(text, source, limits), source).read();
}

namespace {

void write_rates(JsonWriter& json, const std::vector<DeviceRates>& all) {
  if (all.empty()) return;
  json.name("rates").begin_array();
  for (const DeviceRates& rates : all) {
    json.begin_object().member("device", rates.device);
    if (!rates.short_name.empty()) json.member("short", rates.short_name);
    json.member("source", rates.source);
    for (const auto& [type, flops] : rates.flops_per_second) json.member(name_of(type), flops);
    if (!rates.share_of.empty()) {
      json.name("ops").begin_array();
      for (const auto& [op, share] : rates.share_of)
        json.begin_object().member("op", op).member("share", share).end_object();
      json.end_array();
    }
    json.member("bytes_per_second", rates.bytes_per_second).member("fixed", rates.fixed);
    const auto rate = [&](const char* name, const std::optional<double>& value) {
      if (value) json.member(name, *value);
    };
    rate("fp8", rates.fp8_flops_per_second);
    rate("peak_flops", rates.peak_flops);
    rate("host_bytes_per_second", rates.host_bytes_per_second);
    rate("host_memory_bytes_per_second", rates.host_memory_bytes_per_second);
    rate("drive_bytes_per_second", rates.drive_bytes_per_second);
    rate("beside_exchanges", rates.beside_exchanges);
    const auto links = [&](const char* name, const char* latency, const LinkRates& link) {
      if (link.bytes_per_second > 0) json.member(name, link.bytes_per_second).member(latency, link.latency);
    };
    links("within", "within_latency", rates.within);
    links("between", "between_latency", rates.between);
    json.member("least", rates.least).member("most", rates.most).end_object();
  }
  json.end_array();
}

}  // namespace

std::string to_json(const CostTable& table) {
  JsonWriter json;
  json.begin_object().member("prun_costs", version);
  json.name("machine").begin_object().member("cpu", table.machine.cpu);
  json.member("cores", table.machine.cores).member("isa", table.machine.isa).end_object();
  if (table.host_gb_per_second) json.member("host_gb_per_second", *table.host_gb_per_second);
  write_rates(json, table.rates);
  json.name("overheads").begin_array();
  for (const auto& [device, overheads] : table.overheads) {
    json.begin_object().member("device", device);
    json.member("call", overheads.call).member("handoff", overheads.handoff).end_object();
  }
  json.end_array().name("kernels").begin_array();
  for (const auto& [key, fit] : table.kernels) {
    json.begin_object().member("op", key.op).member("type", name_of(key.type)).member("device", key.device);
    json.member("fixed", fit.fixed).member("per_flop", fit.per_flop).member("per_byte", fit.per_byte);
    json.end_object();
  }
  json.end_array().name("exact").begin_array();
  for (const auto& [key, seconds] : table.exact) {
    json.begin_object().member("device", key.device).member("shape", key.shape);
    json.member("seconds", seconds).end_object();
  }
  json.end_array().name("exchanges").begin_array();
  for (const auto& [key, curve] : table.exchanges) {
    json.begin_object().member("kind", name_of(key.kind)).member("members", key.members);
    json.member("device", key.device);
    if (key.between_hosts) json.member("between_hosts", true);
    json.name("points").begin_array();
    for (const ExchangePoint& point : curve.points)
      json.begin_array().value(point.bytes).value(point.seconds).end_array();
    json.end_array().end_object();
  }
  json.end_array().name("exact_exchanges").begin_array();
  for (const auto& [key, time] : table.exact_exchanges) {
    json.begin_object().member("device", key.device).member("queue", key.queue);
    json.member("kind", name_of(key.kind)).member("members", key.members);
    json.member("bytes", key.bytes).member("seconds", time.seconds).member("lateness", time.lateness);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

std::optional<CostTable> read_costs(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  const std::string failed = "cannot read the cost table " + in_quotes(file.string());
  return parse_costs(whole_file(file, limits.bytes, failed), file.string());
}

namespace {

const OutputKind costs_kind{"a cost table of prun bench", R"({"prun_costs":)"};

// Returns the file's previous table. Pipes, devices and empty files have none.
std::optional<CostTable> table_before(const fs::path& file) {
  check_output(file, costs_kind);
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  if (fs::exists(status) && (fs::is_other(status) || fs::is_empty(file, ignored))) return {};
  return read_costs(file);
}

}  // namespace

void check_can_merge(const fs::path& file, const Machine& here) {
  const std::optional<CostTable> before = table_before(file);
  if (before && before->machine != here)
    throw_error(ErrorCode::bad_input, file.string(), " is of another machine (", to_text(before->machine),
                "; this is ", to_text(here), "); name another file with --out");
}

void merge_costs(const fs::path& file, const CostTable& measured) {
  check_can_merge(file, measured.machine);
  CostTable table = table_before(file).value_or(CostTable{});
  table.merge(measured);
  make_parent(file);
  write_output(file, to_json(table) + "\n", costs_kind);
}

namespace {

// ------------------------------------------------------------------- known costs

namespace fs = std::filesystem;

// Returns them sorted by name.
std::vector<fs::path> shipped_files() {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(shipped_costs_folder(), ignored))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the file, or else the shipped one of that name.
fs::path file_of(const fs::path& named) {
  std::error_code ignored;
  if (fs::exists(named, ignored) || named.has_parent_path()) return named;
  for (const fs::path& shipped : shipped_files()) {
    if (shipped.stem() == named) return shipped;
    if (const std::optional<CostTable> table = read_costs(shipped); table && table->rates_of(named.string()))
      return shipped;
  }
  return named;
}

}  // namespace

fs::path shipped_costs_folder() {
  return fs::canonical("/proc/self/exe").parent_path().parent_path() / "share" / "prun" / "costs";
}

std::vector<DeviceRates> shipped_rates() {
  std::vector<DeviceRates> rates;
  for (const fs::path& file : shipped_files())
    if (const std::optional<CostTable> table = read_costs(file))
      rates.insert(rates.end(), table->rates.begin(), table->rates.end());
  return rates;
}

std::string names_of_shipped() {
  std::vector<std::string> names;
  for (const DeviceRates& one : shipped_rates())
    names.push_back(one.short_name.empty() ? one.device : one.short_name);
  return join(names, ", ");
}

KnownCosts known_costs(const std::optional<fs::path>& named) {
  KnownCosts known;
  const fs::path file = named ? file_of(*named) : default_costs_path();
  std::optional<CostTable> table = read_costs(file);
  if (named && !table)
    throw_error(ErrorCode::not_found, "there is no cost table ", file.string(),
                "; prun bench kernels RECIPE --out FILE makes one, and those of ", names_of_shipped(),
                " come with prun");
  known.measured = table.has_value();
  if (table) known.table = std::move(*table);
  for (DeviceRates& one : shipped_rates()) known.table.rates.push_back(std::move(one));
  return known;
}

CostTable costs_for(const CostTable& costs, const DeviceInfo& device, const Recipe& recipe,
                    PluginHost& plugins) {
  const bool elsewhere = device.absent && costs.machine == this_machine();
  CostTable held = elsewhere ? costs.rates_alone() : costs;
  if (held.has_kernels_of(device.name.view()) || held.rates_of(device.name.view())) return held;
  // Layouts over more ranks have fewer threads a rank, and may use these measurements.
  if (!device.absent && !held.exact.empty()) return held;
  const std::string_view option =
      trait_of(plugins.note("device", recipe.section("device").plugin()), "plan_name");
  throw_error(ErrorCode::not_found, "cannot predict times on '", device.name.view(),
              "': no cost table has it; ",
              device.absent ? "prun bench kernels RECIPE --out FILE makes one on a machine that has it"
                            : "prun bench kernels and prun bench comm measure this machine",
              option.empty() ? ""
                             : detail::concat(", and device.", option,
                                              " names one whose rates come with prun: ", names_of_shipped()));
}

namespace {

// ------------------------------------------------------------------- stated drives

double of_all(const std::vector<double>& rates, std::size_t drives) {
  constexpr double giga = 1e9;
  return giga * static_cast<double>(drives) * *std::min_element(rates.begin(), rates.end());
}

// Returns nothing unless the recipe has both rates.
std::optional<DriveRates> stated_rates(const Recipe& recipe, const PluginNote& note) {
  const std::vector<std::string_view> keys = split(trait_of(note, "rates"), ',');
  const std::string table = detail::concat("tier.", note.name);
  if (keys.size() != 2 || !recipe.find(detail::concat(table, ".", trim(keys[0])))) return {};
  const RecipeSection section = recipe.section(table);
  const std::vector<double>&reads = section.numbers(trim(keys[0])), &writes = section.numbers(trim(keys[1]));
  const std::size_t drives = section.texts(trait_of(note, "tier")).size();
  if (reads.empty() || writes.empty() || drives == 0) return {};
  return DriveRates{of_all(reads, drives), of_all(writes, drives)};
}

}  // namespace

std::optional<DriveRates> stated_drives_of(const Assembly& assembly, PluginHost& plugins,
                                           std::size_t device) {
  if (device == 0) return {};
  const PluginNote& note =
      plugins.note("device", assembly.unlowered().requests().more_devices.at(device - 1));
  return trait_of(note, "rates").empty() ? std::nullopt : stated_rates(assembly.recipe(), note);
}

std::optional<CostTable> with_stated_drives(const CostTable& table, const Assembly& assembly,
                                            PluginHost& plugins) {
  std::optional<CostTable> with;
  for (std::size_t device = 1; device < assembly.device_infos().size(); ++device) {
    const std::optional<DriveRates> rates = stated_drives_of(assembly, plugins, device);
    const std::string name(assembly.device_infos()[device].name.view());
    if (!rates || table.stated_drives.count(name) != 0) continue;
    if (!with) with = table;
    with->stated_drives.emplace(name, *rates);
  }
  return with;
}

}  // namespace prun
