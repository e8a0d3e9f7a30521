// The part of Jinja that chat templates are made of, held to what Jinja itself writes of the same.
#include "chat/template.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace prun::test {
namespace {

using chat::Dict;
using chat::Template;
using chat::Value;

std::string rendered(const std::string& text, const char* today = "") {
  Dict variables;
  const JsonValue given = parse_json(
      R"({"n":5,"s":" a b ","list":["x","y","z"],"d":{"k":"v","n":null},"t":true,"empty":[],"u":"äÖ<b>",)"
      R"("rows":[{"a":1,"c":{"e":5}},{"a":2,"b":"q","c":{"e":6}},{"a":0,"c":{}}]})",
      "given");
  for (const JsonMember& member : given.as_object().members())
    variables.set(member.name, Value::of(member.value));
  return Template(text, "it").render(variables, chat::read_day(today)).text;
}

// Each pair is what jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(first).render(...)
// gives.
TEST(Template, WritesWhatJinjaWrites) {
  const struct {
    const char *text, *expected;
  } cases[] = {
      {"a{{ 'b' }}c\n", "abc"},
      {"{% if t %}\nyes\n{% endif %}\nend\n\n", "yes\nend\n"},
      {"x\n  {% if t %}\n  y\n  {% endif %}\nz", "x\n  y\nz"},
      {"x  {%- if t -%}  y  {%- endif -%}  z", "xyz"},
      {"x {%+ if t %}\n y {% endif +%}\nz", "x  y \nz"},
      {"a{# note #}\nb {#- note -#} c", "abc"},
      {"{{ 1 + 2 * 3 - 4 }}", "3"},
      {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }}", "-4 2 -2"},
      {"{{ n ~ 's' ~ t ~ none }}", "5sTrueNone"},
      {"{{ s | trim | length }} {{ s | trim + 'c' }}", "3 a bc"},
      {"{{ 'a' if not t else 'b' if n > 4 else 'c' }}", "b"},
      {"{{ 'a' if not t }}|", "|"},
      {"{% for x in list %}{{ loop.index }}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
       "1x,2y,3z"},
      {"{% for x in list if x != 'y' %}{{ loop.length }}{{ x }}{% endfor %}", "2x2z"},
      {"{% for x in empty %}{{ x }}{% else %}none{% endfor %}", "none"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "k=v;n=None;"},
      {"{% for k in d %}{{ k }}{% endfor %}", "kn"},
      {"{% for x in list %}{% if x == 'y' %}{% continue %}{% endif %}{{ x }}{% endfor %}", "xz"},
      {"{% for x in list %}{% if x == 'y' %}{% break %}{% endif %}{{ x }}{% endfor %}", "x"},
      {"{% for x in list %}{{ loop.previtem }}{{ loop.nextitem is defined }}{% endfor %}", "TruexTrueyFalse"},
      {"{% set a = 1 %}{% for x in list %}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}", "2221"},
      {"{% set q = namespace(a=1) %}{% for x in list %}{% set q.a = q.a + 1 %}{% endfor %}{{ q.a }}", "4"},
      {"{% if t %}{% set a = 'in' %}{% endif %}{{ a }}", "in"},
      {"{{ list[1:] | join('-') }} {{ list[:-1] | join }} {{ list[::-1] | first }} {{ list[-1] }}",
       "y-z xy z z"},
      {"{{ d.k }}{{ d['k'] }}{{ d.none }}{{ d.get('x', 'y') }}{{ d.get('x') }}", "vvyNone"},
      {"{{ 'k' in d }} {{ 'q' not in list }} {{ 'b' in s }}", "True True True"},
      {"{{ missing is defined }} {{ d is mapping }} {{ list is string }} {{ d.n is none }} {{ n is not "
       "number }}",
       "False True False True False"},
      {"{{ missing or 'other' }}{{ '' and 'x' }}|", "other|"},
      {"{{ missing | default('d') }} {{ '' | default('e') }}{{ '' | default('f', true) }}", "d f"},
      {"{{ d | tojson }} {{ list | tojson }} {{ u | tojson }}",
       "{\"k\": \"v\", \"n\": null} [\"x\", \"y\", \"z\"] \"äÖ<b>\""},
      {"{{ 'a,b,c'.split(',')[-1] }}{{ 'xxaxx'.strip('x') }}{{ 'a b'.replace(' ', '') }}", "caab"},
      {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('ab') }} {{ 'aB'.upper() }} {{ u.lower() }}",
       "True False AB äö<b>"},
      {"{{ \"it's\\n\" }}{{ 'a' 'b' }}", "it's\nab"},
      {"{{ range(3) | join }}{{ ([1, 2] + [3]) | length }}", "0123"},
      {"{% generation %}g{% endgeneration %}", "g"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(rendered(text), expected) << text;
}

// The file holds templates with what transformers renders of each on this day (tests/chat/make_fixtures
// --jinja).
TEST(Template, WritesWhatTransformersWrites) {
  std::ifstream file(PRUN_TEST_FIXTURES "/chat/jinja.jsonl");
  int compared = 0;
  for (std::string line; std::getline(file, line); ++compared) {
    const JsonValue pair = parse_json(line, "jinja.jsonl");
    const std::string& text = pair.as_array()[0].as_string();
    EXPECT_EQ(rendered(text, "2026-07-05"), pair.as_array()[1].as_string()) << text;
  }
  EXPECT_GT(compared, 70);
}

std::string refused_template(const std::string& text) {
  try {
    return "(" + rendered(text) + ")";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
}

TEST(Template, WhatPrunDoesNotHaveIsRefusedByName) {
  const struct {
    const char *text, *says;
  } cases[] = {
      {"a\n{% call f() %}{% endcall %}", "it:2: 'call' is a statement that prun does not have"},
      {"{% for x in list %}{% macro f() %}{% endmacro %}{% endfor %}", "a macro in a loop"},
      {"{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}", "'generation' in a macro"},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "the macro 'f' takes no more than 1 arguments"},
      {"{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "the macro 'f' takes no 'b' here"},
      {"{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", "the function 'caller'"},
      {"{% set f = n %}{{ f() }}", "'f' is a number, and is called"},
      {"{{ d.items }}", "a method written as a text"},
      {"{{ 'a<' + (s | safe) }}", "'+' of what is safe"},
      {"{{ s | wordwrap }}", "the filter 'wordwrap' of a text"},
      {"{{ s | trim(left=1) }}", "'left' of the filter 'trim'"},
      {"{{ s.format(1) }}", "'format' of a text"},
      {"{{ cycle(1) }}", "the function 'cycle'"},
      {"{{ n is filter }}", "the test 'filter'"},
      {"{{ u.upper() }}", "upper case of letters beyond ASCII"},
      {"{{ strftime_now('%Y') }}", "the template asks for the day's date"},
      {"{{ raise_exception('no') }}", "the template refuses the conversation: no"},
      {"{{ missing.x }}", "'missing' is not there"},
      {"{{ 1.5 // 1 }}", "'//' of numbers with a fraction"},
      {"{{ s + n }}", "+ is asked of a text and a number"},
      {"{{ [missing] }}", "what is not there, written in a list"},
      {"{{ 1 // 0 }}", "divided by zero"},
      {"{{ {1: 2} }}", "the key of a dict is a number"},
      {"{{ 'a\\0' }}", "is not an escape that prun knows"},
      {"{{ list[::0] }}", "the step of a slice is zero"},
      {"{% set q = namespace() %}{% set q._a = 1 %}", "a namespace holds no '_a'"},
      {"{{ 999999999999999 * 10 }}", "numbers are too large"},
      {"{{ 'a", "does not end"},
      {"{% if t %}", "'endif' is missing"},
      {"{% endif %}", "'endif' has no beginning"},
      {"{{ a $ b }}", "'$' is not a sign"},
      {"{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}",
       "takes too many steps"},
  };
  for (const auto& [text, says] : cases)
    EXPECT_NE(refused_template(text).find(says), std::string::npos) << text << ": " << refused_template(text);
  EXPECT_NE(refused_template("{{" + std::string(1000, '(') + "1" + std::string(1000, ')') + "}}")
                .find("nested too deeply"),
            std::string::npos);
}

// Each makes more than memory holds in a few lines; what refuses it names the third.
TEST(Template, WhatItHoldsIsBounded) {
  const std::string loop = "\n{% for i in range(60) %}\n", end = "{% endfor %}", eight = "'xxxxxxxx'";
  const auto doubled = [&](const std::string& first, const std::string& change) {
    return "{% set q = namespace(a=" + first + ", n=1) %}" + loop + "{% set q.a = " + change + " %}" + end;
  };
  std::string many =
      "{% set q = namespace(a='x') %}\n{% for i in range(24) %}{% set q.a = q.a + q.a %}{% endfor %}\n";
  for (int i = 0; i < 40; ++i) many += "{% set a" + std::to_string(i) + " = q.a %}";
  const std::string cases[] = {
      doubled("'x'", "q.a + q.a"),
      doubled("'x'", "q.a ~ q.a"),
      doubled("['x']", "q.a + q.a"),
      doubled("'x'", "[q.a, q.a] | join"),
      doubled("['x', 'x']", "(q.a | join('" + std::string(60, 'y') + "')).split('y')"),
      doubled(eight, "q.a.replace('x', 'xx')"),
      doubled(eight, "q.a | replace('x', q.a)"),
      doubled("'\"'", "(q.a | tojson)"),
      doubled("['x']", "[q.a | string, q.a | string]"),
      doubled("['xx', 'xx']", "q.a | map('replace', 'x', q.a | join) | list"),
      doubled(eight, "q.a * 2"),
      // Lists that share what they hold are small until somebody goes through them.
      doubled("[1]", "[q.a, q.a]"),
      doubled("{'k': 1}", "{'k': q.a, 'l': q.a}"),
      many,
      // All operands of one expression are held at once.
      doubled("'x'", "q.a + (q.a + (q.a + (q.a + q.a)))"),
      "{% set q = namespace(s='x', l=[]) %}{% for i in range(24) %}{% set q.s = q.s + q.s %}{% endfor %}\n"
      "{% for i in range(100) %}\n{% set q.l = q.l + [q.s] %}{% endfor %}",
  };
  for (const std::string& text : cases)
    EXPECT_TRUE(refused_template(text).starts_with("it:3: the ")) << refused_template(text);
}

// Macros that call themselves, and what they write.
TEST(Template, MacrosAreBounded) {
  const auto refused = [](const std::string& body) {
    return refused_template("{% macro f(n) %}\n" + body + "{% endmacro %}{{ f(1) }}");
  };
  EXPECT_NE(refused("{{ f(n) }}").find("goes too deep into itself"), std::string::npos);
  EXPECT_NE(refused("{{ f(n + 1) if n < 30 }}{{ f(n + 1) if n < 30 }}").find("takes too many steps"),
            std::string::npos);
  EXPECT_NE(refused("{% set x %}{% for i in range(9999) %}" + std::string(100'000, 'x') +
                    "{% endfor %}{% endset %}")
                .find("more than 256 MiB"),
            std::string::npos);
  EXPECT_EQ(rendered("{% macro f(n) %}{{ f(n - 1) if n > 0 }}.{% endmacro %}{{ f(60) | length }}"), "61");
}

TEST(Template, WhatItDoesIsBounded) {
  const auto repeated = [](const std::string& first, const std::string& change) {
    return "{% set q = namespace(a=" + first + ") %}\n{% for i in range(2000) %}\n{% set q.a = " + change +
           " %}{% endfor %}";
  };
  EXPECT_NE(refused_template(repeated("1", "[q.a]")).find("it:3: a list is nested too deeply"),
            std::string::npos);
  EXPECT_NE(refused_template(repeated("1", "q.a + q.a")).find("it:3: numbers are too large"),
            std::string::npos);
  // A namespace in itself is let go with the template.
  EXPECT_EQ(rendered("{% set q = namespace(a=1) %}{% set q.a = [q] %}{{ q.a | length }}"), "1");
  // So does reading what is large.
  EXPECT_NE(
      refused_template("{% set q = namespace(a=[1]) %}{% for i in range(20) %}{% set q.a = [q.a, q.a] %}{% "
                       "endfor %}\n{% for i in range(9999) %}{% if q.a == 1 %}{% endif %}{% endfor %}")
          .find("it:2: the template takes too many steps"),
      std::string::npos);
}

// Evaluation goes down into each: rows of operators as parentheses.
TEST(Template, RowsThatNestTooDeeplyAreRefused) {
  const auto row = [](const std::string& first, const char* more, int times) {
    std::string text = "{{ " + first;
    for (int i = 0; i < times; ++i) text += more;
    return text + " }}";
  };
  EXPECT_EQ(rendered(row("1", " + 1", 400)), "401");
  for (const char* more : {" + 1", " ~ 1", " * 1", " and 1", " or 1", " | trim", ".a", "[0]", "[1:]",
                           " is string", " if 1", ".strip()"})
    EXPECT_NE(refused_template(row("1", more, 100'000)).find("nested too deeply"), std::string::npos) << more;
  EXPECT_NE(refused_template(std::string(2 << 20, 'x')).find("has 2097152 bytes"), std::string::npos);
}

}  // namespace
}  // namespace prun::test
