BEGIN TRANSACTION;
CREATE TABLE budget_use (
  budget   text not null,
  period   text not null,
  what     text not null,
  used     integer not null,
  reserved integer not null,
  primary key (budget, period, what)
) without rowid;
INSERT INTO "budget_use" VALUES('all','2026-11-30','cost EUR',850000000,450000000);
INSERT INTO "budget_use" VALUES('all','2026-11-30','effects',2,1);
INSERT INTO "budget_use" VALUES('all','2026-11-30','model_calls',9,1);
INSERT INTO "budget_use" VALUES('all','2026-11-30','tokens',3780,4);
INSERT INTO "budget_use" VALUES('desks','2026-11-30','cost EUR',450000000,50000000);
INSERT INTO "budget_use" VALUES('desks','2026-11-30','model_calls',9,1);
INSERT INTO "budget_use" VALUES('desks','2026-11-30','tokens',3780,4);
CREATE TABLE firing (
  schedule  text not null,
  moment_ms integer not null,
  run       text not null,
  primary key (schedule, moment_ms)
) without rowid;
INSERT INTO "firing" VALUES('nightly',1796080437000,'nightly@2026-11-30T23:13:57Z');
INSERT INTO "firing" VALUES('nightly',1796080438000,'nightly@2026-11-30T23:13:58Z');
INSERT INTO "firing" VALUES('nightly',1796080439000,'nightly@2026-11-30T23:13:59Z');
CREATE TABLE hint (
  name text primary key,
  body text not null
) without rowid;
INSERT INTO "hint" VALUES('breaker/fetch','{"failures":5,"last_ms":1796080436541,"open_until_ms":1796080437541,"opened":1,"tokens":46.066}');
INSERT INTO "hint" VALUES('breaker/mail','{"failures":1,"last_ms":1796080436464}');
INSERT INTO "hint" VALUES('breaker/send','{"failures":1,"last_ms":1796080436490}');
CREATE TABLE ledger (
  id     integer primary key,
  stream text not null,
  key    text not null,
  body   text not null,
  at_ms  integer not null,
  hash   blob not null
);
INSERT INTO "ledger" VALUES(1,'queues','','{"queues":{"mail":{"concurrency":2}},"tools":{"charge":{"at_once":3,"rate":"600/minute","burst":2},"send":{}},"services":{"bank":{"at_once":3,"tools":["charge"]}},"budgets":{"all":{"tokens":1000000,"effects":100,"cost":"20 EUR","unpriced":"0.05 EUR"},"desks":{"agent":"desk","model_calls":50}}}',1796080436390,X'D55321650BA89643E90D12E1AB61CA2A7B14083954D7F4D2CAA4A84860ED90B4');
INSERT INTO "ledger" VALUES(2,'door/asked','1','"left"',1796080436474,X'EC8FCE6889E97906104C4B82C18B17483DC922B1D67E10D88788250EDB52F290');
INSERT INTO "ledger" VALUES(3,'door/slowed','1','"left"',1796080436496,X'1B2DD9D69F2C3B2FACB36ED4CB58E40D1006567383A51AAC8EDD68046A1E4D92');
INSERT INTO "ledger" VALUES(4,'door/broken','1','"left"',1796080436545,X'AE95F0BC1ED28802FF307BEB7C0B7F5B7C63469B070EE1CAB42B1D0BA175D452');
INSERT INTO "ledger" VALUES(5,'door/asleep','1','"left"',1796080436554,X'D0A7C728F8521E22EE0BB8E85E1FFE90ABA2941ED4FD25B8F7DC8D041561CE04');
INSERT INTO "ledger" VALUES(6,'door/awaits','1','"left"',1796080436565,X'42C9F97D3C7F767A7DFF631FB39CF93310952161C7D96481344F4DEAB7715112');
INSERT INTO "ledger" VALUES(7,'door/stopped','1','"left"',1796080436580,X'965DA2C5EDF22E8D1241B0BB486D67D3521E9253BE9990D15F6CCDD304714362');
INSERT INTO "ledger" VALUES(8,'run/stopped','','{"word":"cancel","by":"ann","note":"it is not wanted"}',1796080436601,X'9F9936D2628E991BAB9E87DB8784F5D133F8030338DCEC775FD6D3FF7CF32212');
INSERT INTO "ledger" VALUES(9,'door/stopped','3','"left"',1796080436609,X'36D85B71D0842748A104767A759C38D7BA6DCF4FE942DE4B46358BCB51BC69E8');
INSERT INTO "ledger" VALUES(10,'door/stopped','5','"left"',1796080436620,X'729629D349C3F6919BF1792C6ABE95ED14BC6170C65EB694DC47AADE55460C0D');
INSERT INTO "ledger" VALUES(11,'schedules','declare/0','{"word":"declare","schedules":{"nightly":{"agent":"desk","input":{"name":"fired"},"every_ms":1000,"missed":"all"}}}',1796080436633,X'7F0D2A7647BBAD402BED2A972910ED32EB414FA20D781465913F34AA394F236D');
CREATE TABLE meta (
  name  text primary key,
  value text not null
) without rowid;
INSERT INTO "meta" VALUES('incarnation','57377bdd6a6f3de4');
INSERT INTO "meta" VALUES('mode','wal');
INSERT INTO "meta" VALUES('namespace','859204bc3c5d29bf');
INSERT INTO "meta" VALUES('reason','');
INSERT INTO "meta" VALUES('secret','a863b9d3c2a26aace4cbeee0d67dd06e0d1f43f18ee627f6f74b9b3b0b3cdc75');
INSERT INTO "meta" VALUES('trust','trusted');
CREATE TABLE migration (version integer primary key, name text not null, checksum text not null, applied_ms integer not null);
INSERT INTO "migration" VALUES(1,'sqlite.sql','da7dcd3b721d3108c15e0332972b810f198a287770341468ef3030cfd867734f',1796080436375);
CREATE TABLE pace (
  name      text primary key,
  boot      text not null,
  due_ns    integer not null,
  closed_ms integer not null,
  busy_ns   integer not null,
  apart_ns  integer not null
) without rowid;
INSERT INTO "pace" VALUES('service bank','boot-1',19552533000000,0,19552533000000,0);
INSERT INTO "pace" VALUES('tool charge','boot-1',19552633000000,0,19552533000000,100000000);
INSERT INTO "pace" VALUES('tool send','boot-1',19549666000000,23149671,19549666000000,0);
CREATE TABLE payload (
  digest text primary key,
  body   text not null
) without rowid;
CREATE TABLE permit (
  name      text not null,
  worker    text not null,
  number    integer not null,
  operation text not null,
  units     integer not null,
  at_ms     integer not null,
  primary key (worker, number, name)
) without rowid;
INSERT INTO "permit" VALUES('service bank','e0e3bd660ecaca886889f444950fa392',1,'calls/charge#1',1,19552533);
INSERT INTO "permit" VALUES('tool charge','e0e3bd660ecaca886889f444950fa392',1,'calls/charge#1',1,19552533);
CREATE TABLE queue (
  name    text primary key,
  waiting integer not null
) without rowid;
INSERT INTO "queue" VALUES('default',3);
INSERT INTO "queue" VALUES('mail',2);
CREATE TABLE record (
  id      integer primary key,
  run     integer not null,
  seq     integer not null,
  token   integer not null,
  content text not null,
  at      integer,
  up      integer,
  hash    blob not null,
  body    text generated always as (
    case when at is null and up is null then content
    else content || ',"at":' || coalesce(at, '') || ',"up":' || coalesce(up, '') || '}' end
  ) virtual
);
INSERT INTO "record" VALUES(1,1,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"charge","name":"charged"}]}},"digest":"m1t8sQDb0W3a5zzrT_ZUtQ","program":"desk"',1796080436401,19549585,X'58B72098B91FE059071C4AD44DFD315133AAC49790632A0262F4D2E3B439F971');
INSERT INTO "record" VALUES(2,1,2,1,'{"kind":"Claimed","worker":"a23912168cc8ff2de30ac8798a228b6f","token":1,"boot":"boot-1"',1796080436401,19549585,X'E8746F9BDD19081B2A8ACA24140AADE34F88A1855FCF1F87BC1DF363ECF8AFDA');
INSERT INTO "record" VALUES(3,1,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080436405,19549588,X'B5EC313A63C32538CB04F084D1680B370A07B9D04C10EB2D23530AA007BCBCCC');
INSERT INTO "record" VALUES(4,1,4,1,'{"kind":"DecisionRecorded","step":"judge#1","function":"judge","digest":"wxyBwbADKBjzR95lYRbcrw","seen":[["charged"],{}],"result":{"usage":{"input_tokens":400,"output_tokens":20}},"input_tokens":400,"output_tokens":20,"cost":0.0,"ms":4',1796080436408,19549592,X'8192407E8ACB702E6DA1BF1CB0173347C8B03781D5E601D6A708E7DFC5D5F7AF');
INSERT INTO "record" VALUES(5,1,5,1,'{"kind":"ContractStored","digest":"9NqZs8O8","clauses":{"tool":"charge","idempotency":{"type":"key","ttl":null},"timeout_ms":60000,"budget":{"call":"0.40 EUR"},"may_be_null":false}}',NULL,NULL,X'B417279802548E68527992DEAB0E4222DDD13B533256780E972FDE24270A5C47');
INSERT INTO "record" VALUES(6,1,6,1,'{"kind":"AttemptStarted","step":"charge#1","intent":{"tool":"charge","arguments":{"name":"charged"},"digest":"ZauObyFyLNdTK_6LUdwzvg","contract":"9NqZs8O8","price":"0.40 EUR"},"shared":[["all","2026-11-30"]]',1796080436412,19549595,X'3F56D6699CF9241D0E48E944328268033FE0F8711977CB76E0284C6A8C9FF58F');
INSERT INTO "record" VALUES(7,1,7,1,'{"kind":"OperationSettled","step":"charge#1","result":"charged charged","end":{}',1796080436414,19549598,X'936099A2D83EBF703F32653D4BEECF845856AA5EA9F5B7913B74ECA96327CF19');
INSERT INTO "record" VALUES(8,1,8,1,'{"kind":"RunCompleted","result":"charged charged"',1796080436417,19549601,X'F28EA5736FBF896FDB6202DC77B05C80B0C4F4E9A7B9E9D9BE7F7DE8701E362E');
INSERT INTO "record" VALUES(9,2,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"mail","name":"asked"}]}},"digest":"2BZOd6e-ySGXzMjU1TCA5g","program":"desk"',1796080436422,19549606,X'EFFA63E0C98EE9A387CB134D579C81EA0203A0DFD65701812F4C330440A3CDB9');
INSERT INTO "record" VALUES(10,2,2,1,'{"kind":"Claimed","worker":"a23912168cc8ff2de30ac8798a228b6f","token":1,"boot":"boot-1"',1796080436422,19549606,X'C5F5A7E8E3FDBF48268740BD9C5231E63CAA3AEEFE6C731B1618F8BC6F1F8278');
INSERT INTO "record" VALUES(11,2,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080436426,19549610,X'191693D2FB423A3A888ED890C40EF16E94711349309E5B3FAEE30D4196569EEA');
INSERT INTO "record" VALUES(12,2,4,1,'{"kind":"DecisionRecorded","step":"judge#1","function":"judge","digest":"xKlENdsn2RaYeDuM-yJi4Q","seen":[["asked"],{}],"result":{"usage":{"input_tokens":400,"output_tokens":20}},"input_tokens":400,"output_tokens":20,"cost":0.0,"ms":5',1796080436431,19549615,X'3AEBDAB4BDD4C62ECB85A8233CCEDA75B7DD1FFF8BF6AA771F4090D9AEE3E6C0');
INSERT INTO "record" VALUES(13,2,5,1,'{"kind":"ContractStored","digest":"oXbpIZIb","clauses":{"tool":"mail","timeout_ms":60000,"budget":{},"may_be_null":false}}',NULL,NULL,X'BB44771D9E9035683214002AF20248F5F3FD11C6C4F8CE19079B2BCCD620B607');
INSERT INTO "record" VALUES(14,2,6,1,'{"kind":"AttemptStarted","step":"mail#1","intent":{"tool":"mail","arguments":{"name":"asked"},"digest":"AI_7IL0Adba1ozVlAYQf7Q","contract":"oXbpIZIb"},"shared":[["all","2026-11-30"]]',1796080436432,19549615,X'5508D9DC9C01056784C2AA682E3543F91D4C43856E61F2658BFBE3B39C6A5494');
INSERT INTO "record" VALUES(15,2,7,1,'{"kind":"AttemptEnded","step":"mail#1","number":1,"end":{"kind":"ambiguous","why":"TimeoutError: no answer"}',1796080436440,19549624,X'F78BF346EF0A95E95D96DE8D8018F041FD6EAA19C7420182A2B9CCDE9E2BD1C4');
INSERT INTO "record" VALUES(16,2,8,1,'{"kind":"OperationSettled","step":"mail#1","status":"unknown","basis":{"by":"rule"},"rule":"nothing can prove it","reason":"an attempt may have landed","number":0,"until":1796685236468',1796080436468,19549652,X'E94CCAE4DC4A2415FD28BBDD9F01F0D4BDA389F744A0F50C4A71FA2F694803E3');
INSERT INTO "record" VALUES(17,2,9,1,'{"kind":"RunSuspended","reason":"asked/mail#1: an attempt may have landed (TimeoutError: no answer)"',1796080436473,19549657,X'DD955FD8DEF88D060A6D67EBC89E3198C7F2E29EBAAD25BBE9154F181E38BCEB');
INSERT INTO "record" VALUES(18,3,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"send","name":"slowed"}]}},"digest":"VFASAFL-Yu0p70Bfu1pYgg","program":"desk"',1796080436477,19549660,X'6FA554DE6DD9618AFE845F14CC53917809B34B37CD261F57CCBD1062F1B885A8');
INSERT INTO "record" VALUES(19,3,2,1,'{"kind":"Claimed","worker":"a23912168cc8ff2de30ac8798a228b6f","token":1,"boot":"boot-1"',1796080436477,19549660,X'97FDC2E005C9D3E436D04D30DE48F6DA710051B13234B10DA47DB4A5A6B65B88');
INSERT INTO "record" VALUES(20,3,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080436480,19549664,X'2CBCC299A113C9BEEA5202D920421DB62735BED126CF8980AA92AE2CB6BE3E76');
INSERT INTO "record" VALUES(21,3,4,1,'{"kind":"DecisionRecorded","step":"judge#1","function":"judge","digest":"NlK0JF4zKrp2HCT_ds-ePw","seen":[["slowed"],{}],"result":{"usage":{"input_tokens":400,"output_tokens":20}},"input_tokens":400,"output_tokens":20,"cost":0.0,"ms":3',1796080436482,19549666,X'4FDA33DF0F5F67CD6D21E9630CA2F640A874849F0E901AB09CE9BD147B2FC6AC');
INSERT INTO "record" VALUES(22,3,5,1,'{"kind":"ContractStored","digest":"JBRvZeED","clauses":{"tool":"send","timeout_ms":60000,"retry":{"attempts":50,"base":"PT0.001S","cap":"PT0.002S"},"budget":{},"may_be_null":false}}',NULL,NULL,X'CE4E8E5A29C1618372EF6A3F87475F808D6DEE325D4F56A7BD64C369D678F5D6');
INSERT INTO "record" VALUES(23,3,6,1,'{"kind":"AttemptStarted","step":"send#1","intent":{"tool":"send","arguments":{"name":"slowed"},"digest":"tmE5qntT5FLr2MMYFrFzhA","contract":"JBRvZeED"},"shared":[["all","2026-11-30"]]',1796080436485,19549668,X'C3E0C8C389ACF225176705E85233CBDDC83A109BF1F90B241354AD7C34C9BD18');
INSERT INTO "record" VALUES(24,3,7,1,'{"kind":"AttemptEnded","step":"send#1","number":1,"end":{"kind":"not_sent","why":"NotSent: down.","retry_after_ms":3600000}',1796080436487,19549671,X'0A23FA3885EBCE84563F68EF692009779BDE78FB4FA278D196A282D0F66E92F4');
INSERT INTO "record" VALUES(25,3,8,1,'{"kind":"WaitScheduled","step":"send#1","ms":3600000,"until":1796084036492,"why":"retry","rule":"full jitter before the next attempt"',1796080436492,19549676,X'39594D6685400432E0201BD26F19553B83AE270974108A84B822A6EFC2820130');
INSERT INTO "record" VALUES(26,3,9,1,'{"kind":"RunSuspended","reason":"slowed/send#1: full jitter before the next attempt"',1796080436496,19549679,X'EC07D8D237D54F57262BA70ACCFC8002C799CCF7AEBC84A3EBACEF226DB4E35F');
INSERT INTO "record" VALUES(27,4,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"fetch","name":"broken"}]}},"digest":"VjEP3ivknBuAWfv0reEjkQ","program":"desk"',1796080436498,19549682,X'917804A0CC9C96C47098B7D49ACC08D722573B94C1F8761381AD8A55666DD61D');
INSERT INTO "record" VALUES(28,4,2,1,'{"kind":"Claimed","worker":"a23912168cc8ff2de30ac8798a228b6f","token":1,"boot":"boot-1"',1796080436498,19549682,X'ED4514A941ACA3DD17103C27B0F542E2393C08A1697D09F8BFF1DA0D5199CE89');
INSERT INTO "record" VALUES(29,4,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080436501,19549684,X'81DF6849B15CA412EE00324FDE3FB0BAA6ED2A3852AA453C7E4FB1E4FC2FAE7D');
INSERT INTO "record" VALUES(30,4,4,1,'{"kind":"DecisionRecorded","step":"judge#1","function":"judge","digest":"4Cgpi1XmvIawuz0SrQLRFA","seen":[["broken"],{}],"result":{"usage":{"input_tokens":400,"output_tokens":20}},"input_tokens":400,"output_tokens":20,"cost":0.0,"ms":3',1796080436503,19549687,X'D18243EA1E30D0C75F979A5AEA57149285210756181151BC824F199A7474C8B7');
INSERT INTO "record" VALUES(31,4,5,1,'{"kind":"ContractStored","digest":"viY93fgp","clauses":{"tool":"fetch","timeout_ms":60000,"retry":{"attempts":50,"base":"PT0.001S","cap":"PT0.002S"},"budget":{},"may_be_null":false}}',NULL,NULL,X'044D0FF71B6E2BF646C16D47A48521B2D83E7881E2D66E57A37B57465B456387');
INSERT INTO "record" VALUES(32,4,6,1,'{"kind":"AttemptStarted","step":"fetch#1","intent":{"tool":"fetch","arguments":{"name":"broken"},"digest":"UAcA_FQKQhGcQg1suBc6Ig","contract":"viY93fgp"},"shared":[["all","2026-11-30"]]',1796080436504,19549687,X'669EE833BFBB77876E710431CE0F0945BED8635856E8C02E7B529B680DB9A39E');
INSERT INTO "record" VALUES(33,4,7,1,'{"kind":"AttemptEnded","step":"fetch#1","number":1,"end":{"kind":"not_sent","why":"NotSent: down."}',1796080436506,19549689,X'8CAB7841208D12E8509C351C97046F7A3FD57C679A257ECC37F40CA8C68731F1');
INSERT INTO "record" VALUES(34,4,8,1,'{"kind":"WaitScheduled","step":"fetch#1","ms":0,"until":1796080436508,"why":"retry","rule":"full jitter before the next attempt"',1796080436508,19549692,X'BBF76B59477F0CEA0150326703F9003B0650CB827F0E11BDCE361366B8B10225');
INSERT INTO "record" VALUES(35,4,9,1,'{"kind":"AttemptStarted","step":"fetch#1","number":2,"shared":[["all","2026-11-30"]]',1796080436511,19549695,X'0B12E463CD73CEA7EA7E9EEF57D67B8490BA657C58AF14FD13CE2FE8F8BD60DF');
INSERT INTO "record" VALUES(36,4,10,1,'{"kind":"AttemptEnded","step":"fetch#1","number":2,"end":{"kind":"not_sent","why":"NotSent: down."}',1796080436514,19549697,X'4889292794F09A6BB2C925ED6174BAC0E10199104026EC43CC0FAD1C8D2EED56');
INSERT INTO "record" VALUES(37,4,11,1,'{"kind":"WaitScheduled","step":"fetch#1","ms":0,"until":1796080436516,"why":"retry","rule":"full jitter before the next attempt"',1796080436516,19549700,X'11A440E1A9DF3979F04F7E2BC96C535F7AD70E8A4E5D0E36620B1BE20BD02D64');
INSERT INTO "record" VALUES(38,4,12,1,'{"kind":"AttemptStarted","step":"fetch#1","number":3,"shared":[["all","2026-11-30"]]',1796080436519,19549703,X'97F6D8D225667B14C3671C9DD47C059031846811F2F004E332151BA243BEA2FB');
INSERT INTO "record" VALUES(39,4,13,1,'{"kind":"AttemptEnded","step":"fetch#1","number":3,"end":{"kind":"not_sent","why":"NotSent: down."}',1796080436522,19549705,X'318D67B58C986559E8319E19548153725C5895B148BB532E8C3D6F24962D45F5');
INSERT INTO "record" VALUES(40,4,14,1,'{"kind":"WaitScheduled","step":"fetch#1","ms":1,"until":1796080436525,"why":"retry","rule":"full jitter before the next attempt"',1796080436524,19549708,X'4E96B3071F289733CBC42EFB97009B022805E4FADEADCBEB18287BDD07F58B54');
INSERT INTO "record" VALUES(41,4,15,1,'{"kind":"AttemptStarted","step":"fetch#1","number":4,"shared":[["all","2026-11-30"]]',1796080436526,19549710,X'2937540E857CBB369D952BF74C0D7554E51B216B424541397B89A3CBE35CD8C7');
INSERT INTO "record" VALUES(42,4,16,1,'{"kind":"AttemptEnded","step":"fetch#1","number":4,"end":{"kind":"not_sent","why":"NotSent: down."}',1796080436531,19549714,X'B32C82F890AE614BED2566CFEA4CD0A2711BE9C2DD65C64FC658813236FEE839');
INSERT INTO "record" VALUES(43,4,17,1,'{"kind":"WaitScheduled","step":"fetch#1","ms":1,"until":1796080436534,"why":"retry","rule":"full jitter before the next attempt"',1796080436533,19549717,X'64DD20A48230C187D24670CFA5F731C7CBAAF847D50F084946E66AE4590CD969');
INSERT INTO "record" VALUES(44,4,18,1,'{"kind":"AttemptStarted","step":"fetch#1","number":5,"shared":[["all","2026-11-30"]]',1796080436536,19549719,X'72269A06ABC73DDF8147C1D5DF5626A52079C96F58B4853F72D594FCCF8D655D');
INSERT INTO "record" VALUES(45,4,19,1,'{"kind":"AttemptEnded","step":"fetch#1","number":5,"end":{"kind":"not_sent","why":"NotSent: down."}',1796080436540,19549724,X'78CC11876F7D0907ECDAD0F0CA13D56BA3A67BB59827C793E27296CBEBC098BB');
INSERT INTO "record" VALUES(46,4,20,1,'{"kind":"WaitScheduled","step":"fetch#1","ms":0,"until":1796080436544,"why":"retry","rule":"full jitter before the next attempt"',1796080436544,19549727,X'27620A6F5E4F927D706E3A12744F6936CC498D630021E7283E8ABA4F46D13802');
INSERT INTO "record" VALUES(47,4,21,1,'{"kind":"WaitScheduled","step":"fetch#1","ms":997,"until":1796080437541,"why":"breaker","rule":"the breaker is open","shut":true',1796080436544,19549728,X'06F9EEDE875719959A2D151108BAF422731FD06039C5F72F411A57D8F43D67DA');
INSERT INTO "record" VALUES(48,4,22,1,'{"kind":"RunSuspended","reason":"broken/fetch#1: the breaker is open"',1796080436545,19549728,X'E145EEC7C9B6F69C68DB1F5E12772346E0D136AB42F113E758ABDEBF1F5A9B27');
INSERT INTO "record" VALUES(49,5,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"sleep","name":"asleep"}]}},"digest":"7ArLFH13btZSRWjD3ERTMA","program":"desk"',1796080436547,19549730,X'E244278A788577A32C965EE3D7261523F44D4DC37CD5BCA702384F0CEFBF70A1');
INSERT INTO "record" VALUES(50,5,2,1,'{"kind":"Claimed","worker":"a23912168cc8ff2de30ac8798a228b6f","token":1,"boot":"boot-1"',1796080436547,19549730,X'2DDE0D899C7770D3999C7109464BFF222D9E920E983FF6A7C004847A45096BC1');
INSERT INTO "record" VALUES(51,5,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080436548,19549732,X'9D91284B3216F4930F4BE5D15831AE3F18D0A4BD499E960A1B9E68D699AE1EF5');
INSERT INTO "record" VALUES(52,5,4,1,'{"kind":"DecisionRecorded","step":"judge#1","function":"judge","digest":"awUxHd8TAmOwDIOw0Mp2Ug","seen":[["asleep"],{}],"result":{"usage":{"input_tokens":400,"output_tokens":20}},"input_tokens":400,"output_tokens":20,"cost":0.0,"ms":5',1796080436553,19549737,X'B669B1D70936BCDC5E9835602721866E7E036B4981DBA85CA0833B168D74D959');
INSERT INTO "record" VALUES(53,5,5,1,'{"kind":"TimerSet","step":"sleep#1","until":1796084036553',1796080436553,19549737,X'643489C7B5ED6A00E627CA1E747C17F5920916C75B7CC02B8C9059F12BFE2731');
INSERT INTO "record" VALUES(54,5,6,1,'{"kind":"RunSuspended","reason":"run asleep sleeps"',1796080436554,19549737,X'8D56A522D3D93B77C05927F8FFDF27BBA1CA2721886C352A16A4A5EB6B45684F');
INSERT INTO "record" VALUES(55,6,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"wait","name":"awaits"}]}},"digest":"LOwZfht4_3PlBCv2JIEKjg","program":"desk"',1796080436555,19549739,X'8BDB56F9A2860273241086FBEE665D5FCC12439FF387FD726C6FC8CAD171A670');
INSERT INTO "record" VALUES(56,6,2,1,'{"kind":"Claimed","worker":"a23912168cc8ff2de30ac8798a228b6f","token":1,"boot":"boot-1"',1796080436555,19549739,X'6402470FF138043827D5BF79EA9DA6D1B3B07B21B0C0CB9B90CF1A32CB1B8D79');
INSERT INTO "record" VALUES(57,6,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080436561,19549744,X'AAC94B0C52396B85E14FC75219C3D5D083B2F715A1F949960B2D521774D581A4');
INSERT INTO "record" VALUES(58,6,4,1,'{"kind":"DecisionRecorded","step":"judge#1","function":"judge","digest":"Ou23d3B5wu7EpMWuxcq5kw","seen":[["awaits"],{}],"result":{"usage":{"input_tokens":400,"output_tokens":20}},"input_tokens":400,"output_tokens":20,"cost":0.0,"ms":4',1796080436564,19549748,X'E1A6D3A26FB1EDD0A7CFED6C25020560ACEC3DAE09808DF24F81EFCCB4771E95');
INSERT INTO "record" VALUES(59,6,5,1,'{"kind":"TimerSet","step":"wait_for:approved#1","until":0,"event":"approved","key":"boss"',1796080436565,19549748,X'D57CCA27475525DF5A1A25BAA5293FC7F7C789760AD9C7D431FB927F57DA4400');
INSERT INTO "record" VALUES(60,6,6,1,'{"kind":"RunSuspended","reason":"run awaits waits for approved boss"',1796080436565,19549749,X'DEBF6D4F5896125CFD402AD744A180CE6FEABAAB1A9EA082582B414A97D2DAC6');
INSERT INTO "record" VALUES(61,7,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"wait","name":"stopped"}]}},"digest":"QRB5E43R5HduKrQ8Ax9Vyw","program":"desk"',1796080436568,19549752,X'B8F913CD19AE989F09AEBE3104772F511771EE7825FED7D56C229D3017458753');
INSERT INTO "record" VALUES(62,7,2,1,'{"kind":"Claimed","worker":"a23912168cc8ff2de30ac8798a228b6f","token":1,"boot":"boot-1"',1796080436568,19549752,X'52D01D28BB517D057C089195491AD1C6A9468578AB666930A9300C8C1A549578');
INSERT INTO "record" VALUES(63,7,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080436573,19549756,X'4CB11AC9FAD10AEE253513126DBDF62A02B30DE3AB812CDB71CDCCC801C87756');
INSERT INTO "record" VALUES(64,7,4,1,'{"kind":"DecisionRecorded","step":"judge#1","function":"judge","digest":"Ebp8kzOixeAliNB3E1isNA","seen":[["stopped"],{}],"result":{"usage":{"input_tokens":400,"output_tokens":20}},"input_tokens":400,"output_tokens":20,"cost":0.0,"ms":4',1796080436576,19549760,X'1B9137912D4CFE58F6EF940AE6717DE69DAB90B5CB4306D422D32C82EE45AB5A');
INSERT INTO "record" VALUES(65,7,5,1,'{"kind":"TimerSet","step":"wait_for:approved#1","until":0,"event":"approved","key":"boss"',1796080436576,19549760,X'8439B8934E551AB8EEA45E9AE780B03C17BBE02F17754712B346B087F729C6A7');
INSERT INTO "record" VALUES(66,7,6,1,'{"kind":"RunSuspended","reason":"run stopped waits for approved boss"',1796080436577,19549760,X'980582B093C03D4B93EE105059FF56A714D439E0E42C7F0A90E253695E104AEC');
INSERT INTO "record" VALUES(67,8,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"end","name":"ended"}]}},"digest":"4nkEtTA51a_6gnJ06GbiJA","program":"desk"',1796080436584,19549768,X'008B149CEE5CE908F942F6BE6BF90478CEF0A4398BF8404C12DEF327B66862AC');
INSERT INTO "record" VALUES(68,8,2,1,'{"kind":"Claimed","worker":"a23912168cc8ff2de30ac8798a228b6f","token":1,"boot":"boot-1"',1796080436584,19549768,X'4BEF38BF0CD5F5AF464FD6406C06D512BB912439A5367D3E0EEDC9BB34185CBF');
INSERT INTO "record" VALUES(69,8,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080436593,19549776,X'D50D9545EB63F99EB5D96509922DE8032A768DEAE1040E5EBA2286D4DC5D2BA2');
INSERT INTO "record" VALUES(70,8,4,1,'{"kind":"DecisionRecorded","step":"judge#1","function":"judge","digest":"8_oJlc6Wl4hWcXn5LTNj0g","seen":[["ended"],{}],"result":{"usage":{"input_tokens":400,"output_tokens":20}},"input_tokens":400,"output_tokens":20,"cost":0.0,"ms":4',1796080436597,19549780,X'410EC77E3CB083F56B7427332FE973C73D73408C0EEA5C60C552446300DE6F28');
INSERT INTO "record" VALUES(71,8,5,1,'{"kind":"RunCompleted","result":"ended: end"',1796080436597,19549780,X'2160F117072FDBFAA1F46D6678D015445643EC27BDE1EC5DA5ABEDEAC4A3C1D4');
INSERT INTO "record" VALUES(72,7,7,3,'{"kind":"CommandApplied","command":"cancel","by":"ann","entry":8,"note":"it is not wanted"',1796080436609,19549792,X'67804CABA3ADBE385C6F523499CD451D36B7839C19A0E36EE5342B1D7E1E288A');
INSERT INTO "record" VALUES(73,7,8,5,'{"kind":"Claimed","worker":"a23912168cc8ff2de30ac8798a228b6f","token":5,"boot":"boot-1"',1796080436616,19549800,X'E249443EEAE4A061A7B4C260CC1472C795C5263494B70287FFF807047E45118C');
INSERT INTO "record" VALUES(74,7,9,5,'{"kind":"RunStopped","reason":"cancelled","error":"it is not wanted"',1796080436620,19549804,X'432844D4A1AD9556DA0A1A00D4CB1FB5665A35A20C5338E12A54A4CEDB9326FF');
INSERT INTO "record" VALUES(75,9,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"charge","name":"queued"}]}},"digest":"KW0KyNIn9hwi4_ha8_w_3g","program":"desk","queue":"mail"',1796080436624,19549808,X'6CB91097FF3DD2A8798C35770788467B5D4990ADE17CEAE6E6344B715CF8F5AE');
INSERT INTO "record" VALUES(76,10,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"charge","name":"queued-too"}]}},"digest":"_gjeeT8vHBs5g35ch-tZXA","program":"desk","queue":"mail"',1796080436626,19549809,X'C1CA76131B81931989EF1218B312F8ED773651651D61480BB5581F7C34B9999B');
INSERT INTO "record" VALUES(77,11,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"end","name":"fired"}]}},"digest":"76rdLVYvqFZMg6D_VMld1A","program":"desk","queue":"default","schedule":"nightly","moment":1796080437000',1796080437039,19550222,X'343BDD481809D24E13860D13F0A5B3EE9C6FCFD829833229AE47070371048840');
INSERT INTO "record" VALUES(78,12,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"end","name":"fired"}]}},"digest":"76rdLVYvqFZMg6D_VMld1A","program":"desk","queue":"default","schedule":"nightly","moment":1796080438000',1796080438055,19551239,X'9E51EDBBF12489D501D5A15205E8735CC27684E327870F71E44495B7E1E112A6');
INSERT INTO "record" VALUES(79,13,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"end","name":"fired"}]}},"digest":"76rdLVYvqFZMg6D_VMld1A","program":"desk","queue":"default","schedule":"nightly","moment":1796080439000',1796080439070,19552253,X'7B4F0400C6ADBCCC2109EB4A98C69F14BF7E721AFEEB699C317A6409522105AD');
INSERT INTO "record" VALUES(80,14,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"charge","name":"thinks"}]}},"digest":"ud2UFoDtzqXPBzM9QqEguA","program":"desk"',1796080439329,19552513,X'252EA7E53EE98CC59CB062C500BCA93BE57EC421861BA9CB2CB5949646B7AB9C');
INSERT INTO "record" VALUES(81,14,2,1,'{"kind":"Claimed","worker":"e0e3bd660ecaca886889f444950fa392","token":1,"boot":"boot-1"',1796080439329,19552513,X'42C23E2D336FF137FF9BE290D6AB80007E1D15ED1DAAE4A08780EADDE960DDFE');
INSERT INTO "record" VALUES(82,15,1,1,'{"kind":"RunStarted","agent":"desk","input":{"input":{"$object":["Task",{"does":"charge","name":"calls"}]}},"digest":"voKUi-fS2bJZTW8YdT2wUg","program":"desk"',1796080439330,19552513,X'427994606ABCBEA91E7F98FB212291805783891E8402FF3884F7F412728AA0B6');
INSERT INTO "record" VALUES(83,15,2,1,'{"kind":"Claimed","worker":"e0e3bd660ecaca886889f444950fa392","token":1,"boot":"boot-1"',1796080439330,19552513,X'5587EF4909B1C057EC6A480A5EBD820AB2E1CC657191EA379E5FBEF25271D1DC');
INSERT INTO "record" VALUES(84,14,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080439337,19552521,X'879394C6178DAD0846098E2B428F18F1D07856C5EC657C4E24692D31578C16D9');
INSERT INTO "record" VALUES(85,15,3,1,'{"kind":"DecisionStarted","step":"judge#1","function":"judge","before":{},"reserved":4,"price":{"amount":"0.05","currency":"EUR","basis":"declared by the budget"},"shared":[["all","2026-11-30"],["desks","2026-11-30"]]',1796080439338,19552521,X'270BE7EBE0CDC5CA1D5BB1BF8DB3BBEA012A38A9ED87DF2FAA46BFB9895EF179');
INSERT INTO "record" VALUES(86,15,4,1,'{"kind":"DecisionRecorded","step":"judge#1","function":"judge","digest":"TpRbPrCFNlu160uDDoAGrw","seen":[["calls"],{}],"result":{"usage":{"input_tokens":400,"output_tokens":20}},"input_tokens":400,"output_tokens":20,"cost":0.0,"ms":11',1796080439349,19552532,X'91E4866698E2CF854EAB3074E7E7458792228028E6CF9F566088D2B58DEC3D83');
INSERT INTO "record" VALUES(87,15,5,1,'{"kind":"ContractStored","digest":"9NqZs8O8","clauses":{"tool":"charge","idempotency":{"type":"key","ttl":null},"timeout_ms":60000,"budget":{"call":"0.40 EUR"},"may_be_null":false}}',NULL,NULL,X'E42314AADF634D3132B8B87F31C02D48DB04BAF17FB98D508D9A361709789D42');
INSERT INTO "record" VALUES(88,15,6,1,'{"kind":"AttemptStarted","step":"charge#1","intent":{"tool":"charge","arguments":{"name":"calls"},"digest":"mDGJqQ5TIjWDSUk1engJIA","contract":"9NqZs8O8","price":"0.40 EUR"},"shared":[["all","2026-11-30"]]',1796080439356,19552540,X'13E3EEC5BCD461F4AC1573AAB40349A4EA0B406FD27FE1F6CF773CEF928C8E06');
CREATE TABLE run (
  id         integer primary key,
  name       text not null unique,
  agent      text not null,
  program    text not null,
  status     text not null,
  reason     text not null,
  due_ms     integer,
  waits      text not null,
  token      integer not null,
  owner      text,
  created_ms integer not null,
  updated_ms integer not null,
  queue      text not null default '',
  tenant     text not null default '',
  about      text not null default '',
  priority   integer not null default 0,
  behind     integer not null default 0,
  holds      integer not null default 0,
  served_ms  integer,
  ready_ms   integer generated always as (case status when 'running' then updated_ms else due_ms end) virtual
);
INSERT INTO "run" VALUES(1,'charged','desk','desk','completed','',NULL,'[]',2,NULL,1796080436401,1796080436417,'','','',0,0,0,NULL);
INSERT INTO "run" VALUES(2,'asked','desk','desk','suspended','asked/mail#1: an attempt may have landed (TimeoutError: no answer)',NULL,'[{"kind":"person","step":"mail#1","asks":"asked/mail#1: an attempt may have landed (TimeoutError: no answer)","due":1796685236468,"at":1796080436468,"tool":"mail","then":"hold","result":true}]',2,NULL,1796080436423,1796080436474,'','','',0,0,0,NULL);
INSERT INTO "run" VALUES(3,'slowed','desk','desk','suspended','slowed/send#1: full jitter before the next attempt',1796084036492,'[{"kind":"retry","step":"send#1","asks":"slowed/send#1: full jitter before the next attempt","due":1796084036492,"at":0}]',2,NULL,1796080436477,1796080436496,'','','',0,0,0,NULL);
INSERT INTO "run" VALUES(4,'broken','desk','desk','suspended','broken/fetch#1: the breaker is open',1796080437541,'[{"kind":"breaker","step":"fetch#1","asks":"broken/fetch#1: the breaker is open","due":1796080437541,"at":0}]',2,NULL,1796080436498,1796080436545,'','','',0,0,0,NULL);
INSERT INTO "run" VALUES(5,'asleep','desk','desk','suspended','run asleep sleeps',1796084036553,'[{"kind":"timer","step":"sleep#1","asks":"run asleep sleeps","due":1796084036553,"at":0}]',2,NULL,1796080436547,1796080436554,'','','',0,0,0,NULL);
INSERT INTO "run" VALUES(6,'awaits','desk','desk','suspended','run awaits waits for approved boss',NULL,'[{"kind":"event","step":"wait_for:approved#1","asks":"run awaits waits for approved boss","due":null,"at":0,"tool":"approved","shown":"boss"}]',2,NULL,1796080436555,1796080436565,'','','',0,0,0,NULL);
INSERT INTO "run" VALUES(7,'stopped','desk','desk','stopped','cancelled: it is not wanted',NULL,'[]',6,NULL,1796080436568,1796080436620,'','','',0,0,0,NULL);
INSERT INTO "run" VALUES(8,'ended','desk','desk','completed','',NULL,'[]',2,NULL,1796080436585,1796080436597,'','','',0,0,0,NULL);
INSERT INTO "run" VALUES(9,'queued','desk','desk','queued','in the queue mail',2208988800000,'[]',2,NULL,1796080436625,1796080436625,'mail','','',0,0,0,NULL);
INSERT INTO "run" VALUES(10,'queued-too','desk','desk','queued','in the queue mail',2208988800000,'[]',2,NULL,1796080436626,1796080436626,'mail','','',0,0,0,NULL);
INSERT INTO "run" VALUES(11,'nightly@2026-11-30T23:13:57Z','desk','desk','queued','in the queue default',1796080437039,'[]',2,NULL,1796080437039,1796080437039,'default','','',0,0,0,NULL);
INSERT INTO "run" VALUES(12,'nightly@2026-11-30T23:13:58Z','desk','desk','queued','in the queue default',1796080438055,'[]',2,NULL,1796080438055,1796080438055,'default','','',0,0,0,NULL);
INSERT INTO "run" VALUES(13,'nightly@2026-11-30T23:13:59Z','desk','desk','queued','in the queue default',1796080439070,'[]',2,NULL,1796080439070,1796080439070,'default','','',0,0,0,NULL);
INSERT INTO "run" VALUES(14,'thinks','desk','desk','running','',NULL,'[]',1,'e0e3bd660ecaca886889f444950fa392',1796080439330,1796080439330,'','','',0,0,0,NULL);
INSERT INTO "run" VALUES(15,'calls','desk','desk','running','',NULL,'[]',1,'e0e3bd660ecaca886889f444950fa392',1796080439330,1796080439330,'','','',0,0,0,NULL);
CREATE TABLE worker (
  id            text primary key,
  machine       text not null,
  boot          text not null,
  pid_namespace text not null,
  pid           integer not null,
  started       integer not null,
  lease_boot    text not null,
  lease_end_ms  integer not null,
  incarnation   text not null
) without rowid;
INSERT INTO "worker" VALUES('a23912168cc8ff2de30ac8798a228b6f','machine-1','boot-1','pids-1',13219,1,'boot-1',19564566,'57377bdd6a6f3de4');
INSERT INTO "worker" VALUES('e0e3bd660ecaca886889f444950fa392','machine-1','boot-1','pids-1',13238,1,'boot-1',19567496,'57377bdd6a6f3de4');
CREATE INDEX run_open on run (status, due_ms) where status in ('running', 'suspended');
CREATE INDEX run_due on run (agent, program, status, due_ms) where owner is null and status in ('running', 'suspended')
  and queue = '';
CREATE INDEX run_held on run (owner) where owner is not null;
CREATE INDEX run_count on run (agent, status);
CREATE INDEX run_halted on run (name) where status = 'stopped' and waits <> '[]';
CREATE INDEX run_lane on run (agent, program, queue, tenant, priority, ready_ms)
  where queue <> '' and owner is null and behind = 0 and status in ('queued', 'running', 'suspended');
CREATE INDEX run_slot on run (queue, agent, tenant, owner) where queue <> '' and owner is not null;
CREATE INDEX run_served on run (queue, tenant, served_ms) where queue <> '' and served_ms is not null;
CREATE INDEX run_key on run (queue, about) where holds = 1;
CREATE INDEX run_behind on run (queue, about, ready_ms) where behind = 1;
CREATE TRIGGER run_submitted after insert on run when new.status = 'queued'
begin
  insert into queue (name, waiting) values (new.queue, 1) on conflict (name) do update set waiting = waiting + 1;
end;
CREATE TRIGGER run_queued after update of status on run
when (old.status = 'queued') <> (new.status = 'queued')
begin
  insert into queue (name, waiting) values (new.queue, (new.status = 'queued') - (old.status = 'queued'))
    on conflict (name) do update set waiting = waiting + excluded.waiting;
end;
CREATE TRIGGER run_key_freed after update of status on run
when old.about <> '' and (
  new.status not in ('queued', 'running', 'suspended')
  or (new.holds = 0 and new.owner is null and new.status <> 'queued')
)
begin
  update run set holds = 0, behind = 0 where id = old.id;
  update run set behind = 0 where id = (
    select id from run where behind = 1 and queue = old.queue and about = old.about order by ready_ms, id limit 1
  );
end;
CREATE INDEX permit_by_name on permit (name);
CREATE UNIQUE INDEX record_run_seq on record (run, seq);
CREATE INDEX ledger_stream on ledger (stream);
CREATE UNIQUE INDEX ledger_key on ledger (stream, key) where key <> '';
CREATE TRIGGER run_limits_changed after insert on ledger when new.stream = 'queues'
begin
  update run set behind = 0 where behind = 1;
end;
COMMIT;
