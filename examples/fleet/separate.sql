-- Which function's result separates failing runs from passing ones? For each function and result: in
-- how many failing and passing runs it occurred, and how well it separates them (Ochiai's
-- coefficient: 1 if it occurs in all failing runs and in no other). Of equal ones, the innermost call is
-- nearest to the cause.
with outcomes as (
    select run, failed from runs where failed is not null
),
totals as (
    select count(*) as failing from outcomes where failed
),
seen as (
    select run, function, result, max(depth) as depth
    from calls
    where result is not null and function is not null
    group by run, function, result
),
counted as (
    select function, result,
        sum(case when failed then 1 else 0 end) as in_failing,
        sum(case when failed then 0 else 1 end) as in_passing,
        avg(case when failed then depth end) as depth
    from seen join outcomes on seen.run = outcomes.run
    group by function, result
)
select function, result, in_failing, in_passing,
    round(in_failing / sqrt(failing * 1.0 * (in_failing + in_passing)), 4) as score
from counted cross join totals
where in_failing > 0
order by score desc, depth desc
limit 5
