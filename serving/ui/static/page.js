// The page asks the service as any application would. All that comes from it is set as text, never as HTML.

const $ = (id) => document.getElementById(id);
const state = { setup: null, key: sessionStorage.getItem("easyrec-key") || "", before: null, asked: "", answers: 0 };

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const fill = (id, ...children) => $(id).replaceChildren(...children.flat());
const quiet = (text) => element("p", { class: "quiet" }, text);
const show = (value) => (Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value));

function say(text, bad = false) {
  $("message").textContent = text;
  $("message").classList.toggle("bad", bad);
}

class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function call(method, path, body) {
  const headers = { Accept: "application/json" };
  if (state.key) headers.Authorization = `Bearer ${state.key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Problem(0, "The service does not answer.");
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  const details = (answer.errors || []).map((one) => `${one.path}: ${one.message}`).join("; ");
  throw new Problem(response.status, [answer.detail || answer.title || `status ${response.status}`, details].filter(Boolean).join(" "));
}

// Runs something that asks the service; what goes wrong is shown in its words.
async function attempt(action) {
  try {
    await action();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    const hint = problem.status === 401 || problem.status === 403 ? " This page needs a key with the scope admin: type it in above." : "";
    say(problem.message + hint, true);
    if (hint) $("key").focus();
  }
}

async function begin() {
  const setup = await call("GET", "/ui/data/setup");
  state.setup = setup;
  fill("users", setup.users.map((user) => element("option", { value: user })));
  fill("scene", setup.scenes.map((scene) => element("option", { value: scene }, scene)));
  fill("type", setup.event_types.map((type) => element("option", { value: type }, type)));
  $("type").value = "click";
  $("summary").textContent = `${setup.items.toLocaleString("en")} items, ranked by ${setup.task}`;
  $("context").title = setup.columns.length ? `Columns that the model reads: ${setup.columns.join(", ")}` : "";
  if (!$("user").value && setup.users.length) $("user").value = setup.users[0];
  await showModels();
  await recommend();
}

function question() {
  const body = { n: Number($("n").value) || 10, scene: $("scene").value, debug: true, properties: true };
  if ($("user").value.trim()) body.user_id = $("user").value.trim();
  if ($("session").value.trim()) body.session_id = $("session").value.trim();
  const context = $("context").value.trim();
  if (context) {
    try {
      body.context = JSON.parse(context);
    } catch {
      throw new Problem(422, 'Context must be a JSON object, such as {"device": "phone"}.');
    }
  }
  return body;
}

async function recommend(said = "") {
  const body = question();
  const asked = JSON.stringify(body);
  const answer = await call("POST", "/v1/recommend", body);
  const before = state.asked === asked ? state.before : null;
  state.asked = asked;
  state.before = new Map(answer.items.map((item) => [String(item.item_id), item.position]));
  const changed = showItems(answer, before);
  showStages(answer);
  await Promise.all([showPerson(body), showDropped(answer), showExperiments()]);
  say(before ? `${said} ${changed ? `${changed} of ${answer.items.length} places changed.` : "The list is the same."}`.trim() : said);
  document.body.dataset.answers = String(++state.answers); // for those who watch the page from outside
}

function nameOf(item) {
  const title = state.setup.title && item.properties ? item.properties[state.setup.title] : null;
  return title ? String(title) : String(item.item_id);
}

function showItems(answer, before) {
  let changed = 0;
  const scores = answer.debug.source_scores;
  const items = answer.items.map((item, place) => {
    const was = before ? before.get(String(item.item_id)) : item.position;
    if (was !== item.position) changed += 1;
    const facts = Object.entries(item.properties || {})
      .filter(([name, value]) => name !== state.setup.title && value !== null)
      .map(([name, value]) => `${name}: ${show(value)}`);
    const found = item.sources.map((source) => {
      const score = scores[place] ? scores[place][source] : undefined;
      return element("span", { class: "chip", title: "Candidate source and its own score" }, score === undefined ? source : `${source} ${score.toPrecision(3)}`);
    });
    return element(
      "li",
      { class: was === undefined ? "new" : null, "data-item": item.item_id },
      element("span", { class: "place" }, `${item.position}.`),
      element("span", { class: "name" }, nameOf(item), moved(was, item.position)),
      element(
        "span",
        { class: "right" },
        element("span", { class: "score", title: "Score of the ranking" }, item.score === null ? "–" : item.score.toFixed(4)),
        element("button", { type: "button", class: "send", onclick: () => attempt(() => send(item, answer.request_id)) }, $("type").value),
      ),
      element("span", { class: "facts" }, [`key: ${item.item_id}`, ...facts].join(" · ")),
      element("span", { class: "found" }, ...(found.length ? found : [element("span", { class: "quiet" }, "no source: filled up")])),
    );
  });
  fill("items", items.length ? items : quiet("Nothing can be recommended. See what was dropped, and why."));
  $("about").textContent = `${answer.model.name} ${answer.model.version} · ${answer.took_ms} ms · request ${answer.request_id}`;
  return changed;
}

function moved(was, is) {
  if (was === is) return null;
  if (was === undefined) return element("span", { class: "moved" }, "new");
  return element("span", { class: was > is ? "moved" : "moved down" }, was > is ? `▲ ${was - is}` : `▼ ${is - was}`);
}

async function send(item, request) {
  const event = {
    event_id: crypto.randomUUID ? crypto.randomUUID() : `${Date.now()}-${Math.random()}`,
    type: $("type").value,
    item_id: String(item.item_id),
    request_id: request,
    position: item.position,
  };
  if ($("user").value.trim()) event.user_id = $("user").value.trim();
  if ($("session").value.trim()) event.session_id = $("session").value.trim();
  if (!event.user_id && !event.session_id) throw new Problem(422, "Name a user or a session: an event is somebody's.");
  if ($("value").value !== "") event.value = Number($("value").value);
  const answer = await call("POST", "/v1/events", [event]);
  if (answer.rejected.length) throw new Problem(422, answer.rejected[0].reason);
  await recommend(`${event.type} on ${nameOf(item)} is stored.`);
}

function showStages(answer) {
  const { stages, fallback, user } = answer.debug;
  const chips = [element("span", { class: "chip" }, user.known.length ? `known from ${user.known.join(", ")}` : "not known")];
  if (fallback) chips.push(element("span", { class: "chip warn" }, `fallback: ${fallback}`));
  for (const part of answer.degraded) chips.push(element("span", { class: "chip warn" }, `left out: ${part}`));
  for (const one of answer.experiments) chips.push(element("span", { class: "chip" }, `${one.experiment}: ${one.variant}`));
  for (const name of user.ignored_context) chips.push(element("span", { class: "chip warn" }, `not read: ${name}`));
  fill("state", chips);
  const longest = Math.max(...stages.map((stage) => stage.ms), 0.001);
  const rows = stages.map((stage) =>
    element(
      "tr",
      { class: stage.problem ? "problem" : null, title: stage.problem || null },
      element("td", {}, stage.stage === "people" ? stage.name : `${stage.stage} ${stage.name}`, stage.problem ? element("div", {}, stage.problem) : null),
      element("td", { class: "time" }, element("meter", { min: 0, max: longest, value: stage.ms, "aria-hidden": "true" }), ` ${stage.ms.toFixed(2)} ms`),
      element("td", { class: "number" }, stage.received ? String(stage.received) : ""),
      element("td", { class: "number" }, stage.stage === "people" ? "" : String(stage.returned)),
    ),
  );
  $("stages").tBodies[0].replaceChildren(...rows);
}

async function showDropped(answer) {
  const dropping = answer.debug.stages.filter((stage) => stage.dropped);
  if (!dropping.length) return fill("dropped", quiet("Nothing."));
  const ids = dropping.flatMap((stage) => stage.dropped_ids.map(String));
  const titles = await call("POST", "/ui/data/titles", [...new Set(ids)]);
  fill(
    "dropped",
    dropping.map((stage) => {
      const names = stage.dropped_ids.map((id) => titles[id] || String(id));
      const more = stage.dropped > names.length ? ` and ${stage.dropped - names.length} more` : "";
      return element("details", {}, element("summary", {}, `${stage.dropped} by ${stage.stage} ${stage.name}`), element("p", {}, names.join(" · ") + more));
    }),
  );
}

async function showPerson(body) {
  const query = new URLSearchParams();
  for (const name of ["user_id", "session_id"]) if (body[name]) query.set(name, body[name]);
  const person = await call("GET", `/ui/data/person?${query}`);
  const profile = Object.entries(person.profile).map(([name, value]) => element("span", { class: "chip" }, `${name}: ${show(value)}`));
  if (person.erased) profile.push(element("span", { class: "chip warn" }, "erased"));
  if (person.store_failed) profile.push(element("span", { class: "chip warn" }, "the store does not answer"));
  fill("profile", profile);
  const events = person.events.map((one) =>
    element(
      "li",
      { class: "event" },
      element("span", { class: "kind" }, one.value === null ? one.type : `${one.type} ${one.value}`),
      one.title || one.item_id || "",
      element("div", { class: "quiet" }, new Date(one.time * 1000).toLocaleString()),
    ),
  );
  const before = person.before.map((one) => element("li", {}, one.title || one.item_id));
  const heading = before.length ? [element("li", { class: "quiet" }, "before the model was trained:")] : [];
  const nobody = person.known ? "Nothing was done yet." : "Nothing is known of this person.";
  fill("history", events.length || before.length ? [...events, ...heading, ...before] : quiet(nobody));
}

async function showModels() {
  const { models } = await call("GET", "/v1/models");
  fill(
    "models",
    models.map((one) => {
      const activate = () =>
        attempt(async () => {
          await call("POST", `/v1/models/${encodeURIComponent(one.name)}/versions/${encodeURIComponent(one.version)}:activate`);
          await showModels();
          await recommend(`Version ${one.version} of ${one.name} is active.`);
        });
      const usable = one.state === "ready" || one.state === "previous";
      return element(
        "li",
        {},
        element("span", { class: "name" }, one.name),
        element("span", {}, one.version),
        element("span", { class: one.state === "failed" ? "chip warn" : "chip" }, [one.state, one.runtime].filter(Boolean).join(", ")),
        usable ? element("button", { type: "button", onclick: activate }, "Activate") : null,
      );
    }),
  );
}

const percent = (share) => `${(share * 100).toFixed(1)} %`;

// Whether units come out as the weights say; below 0.001 it is no accident.
function splitOf(one) {
  if (one.status !== "running") return null;
  if (one.interleave) return element("span", { class: "chip" }, "everybody gets a mixed list");
  if (one.split_p === null) return element("span", { class: "chip" }, "too few units to judge the split");
  const p = one.split_p < 0.0001 ? "p < 0.0001" : `p = ${one.split_p.toPrecision(2)}`;
  if (one.split_p >= 0.001) return element("span", { class: "chip" }, `split as configured (${p})`);
  const advice = "Do not read results of this experiment before the reason is found: a variant that fails, redirects or logs less.";
  return element("span", { class: "chip alarm", title: advice }, `split is not as configured (${p})`);
}

function variantRow(variant, units, weights) {
  const share = units ? percent(variant.units / units) : "–";
  return element(
    "tr",
    {},
    element("td", {}, element("span", { class: "chip", title: show(variant.overrides) }, variant.variant)),
    element("td", { class: "number" }, variant.units.toLocaleString("en")),
    element("td", { class: "number" }, share),
    element("td", { class: "number" }, weights ? percent(variant.weight / weights) : "–"),
    element("td", { class: "number" }, variant.requests.toLocaleString("en")),
  );
}

async function showExperiments() {
  const found = state.setup.experiments ? await call("GET", "/v1/experiments") : {};
  const list = (found.experiments || []).map((one) => {
    const total = (name) => one.variants.reduce((sum, variant) => sum + variant[name], 0);
    const heads = ["variant", "units", "share", "expected", "requests"];
    return element(
      "div",
      {},
      element("span", { class: "name" }, one.experiment),
      ` ${[one.status, one.layer && `layer ${one.layer}`, `${percent(one.share)} of units`].filter(Boolean).join(", ")} `,
      splitOf(one),
      element(
        "table",
        {},
        element("thead", {}, element("tr", {}, ...heads.map((name, place) => element("th", { class: place ? "number" : null }, name)))),
        element("tbody", {}, ...one.variants.map((variant) => variantRow(variant, total("units"), total("weight")))),
      ),
    );
  });
  const refused = (found.refused || []).map((problem) => element("div", { class: "chip warn" }, problem));
  fill("experiments", list.length || refused.length ? [...refused, ...list] : quiet("None."));
}

$("key").value = state.key;
$("key").addEventListener("change", () => {
  state.key = $("key").value.trim();
  sessionStorage.setItem("easyrec-key", state.key);
  attempt(begin);
});
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => (state.setup ? recommend() : begin()));
});
$("another").addEventListener("click", () => {
  const users = state.setup ? state.setup.users : [];
  if (users.length) $("user").value = users[Math.floor(Math.random() * users.length)];
  attempt(() => recommend());
});
$("type").addEventListener("change", () => {
  for (const button of document.querySelectorAll("button.send")) button.textContent = $("type").value;
});

const wanted = new URLSearchParams(location.search);
for (const name of ["user", "session", "n"]) if (wanted.get(name)) $(name).value = wanted.get(name);
attempt(begin);
